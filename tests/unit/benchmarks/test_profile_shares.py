from __future__ import annotations

import pytest

from benchmarks.profile_shares import IDLE, classify

SDK = "/site-packages/azure/durable_functions/models/history/HistoryEvent.py"
DATEUTIL = "/site-packages/dateutil/parser/_parser.py"
ENGINE = "/repo/localazure/functions/durable/engine/episode.py"
HOST = "/repo/localazure/functions/worker/invocation.py"
JSON = "/lib/python3.11/json/decoder.py"
ASYNCIO = "/lib/python3.11/asyncio/events.py"


@pytest.mark.parametrize(
    ("files", "owner"),
    [
        ([DATEUTIL, SDK, HOST, ENGINE, ASYNCIO], "SDK: timestamps (dateutil)"),
        ([SDK, HOST, ENGINE], "SDK: replay"),
        ([JSON, SDK, HOST, ENGINE], "SDK: JSON"),
        ([JSON, ENGINE, ASYNCIO], "engine (JSON)"),
        (["/lib/python3.11/uuid.py", HOST, ENGINE], "host: invocation"),
        (["/repo/benchmarks/apps/chains/function_app.py", SDK], "the app"),
        (["/site-packages/aiohttp/web_protocol.py", ASYNCIO], "HTTP"),
        ([JSON, "/repo/localazure/functions/durable/api/http_api.py"], "HTTP"),
        ([ASYNCIO], "event loop"),
    ],
)
def test_the_innermost_owner_decides(files: list[str], owner: str) -> None:
    assert classify([(file, "f") for file in files]) == owner


def test_waiting_is_not_work() -> None:
    stack = [("/lib/python3.11/selectors.py", "select"), (ASYNCIO, "_run_once")]
    assert classify(stack) == IDLE
