"""Azure's limits, tested with the SDK."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from harness.task_hub import DurableApp, running
from localazure import limits

Context = df.DurableOrchestrationContext
# aiohttp warns about request bodies over 1 MB, which this test sends.
LIMIT_BYTES = 100_000


def make_app() -> DurableApp:
    app = DurableApp()

    @app.activity
    def blow_up(count: int) -> str:
        return "x" * count

    @app.activity
    def measure(text: str) -> int:
        return len(text)

    @app.orchestrator
    def result_of(context: Context) -> Any:
        return len((yield context.call_activity("blow_up", context.get_input())))

    @app.orchestrator
    def input_of(context: Context) -> Any:
        return (yield context.call_activity("measure", "x" * (context.get_input() or 0)))

    @app.orchestrator
    def status_of(context: Context) -> Any:
        context.set_custom_status("first")
        yield context.call_activity("measure", "x")
        context.set_custom_status("x" * (context.get_input() or 0))
        yield context.call_activity("measure", "x")

    return app


async def test_a_custom_status_over_16_kb_fails_the_instance(tmp_path: Path) -> None:
    async with running(make_app(), tmp_path) as hub:
        assert (await hub.run("status_of", 8190)).runtime_status.value == "Completed"
        failed = await hub.run("status_of", 8191)
        assert failed.runtime_status.value == "Failed"
        assert "must not exceed 16 KB" in failed.output
        assert failed.custom_status == "first"


async def test_the_managed_scheduler_takes_no_payload_over_1_mb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits.DURABLE_SCHEDULER_PAYLOAD.value == 1024 * 1024
    smaller = replace(limits.DURABLE_SCHEDULER_PAYLOAD, value=LIMIT_BYTES)
    monkeypatch.setattr(limits, "DURABLE_SCHEDULER_PAYLOAD", smaller)
    managed = {"storageProvider": {"type": "azureManaged"}}
    async with running(make_app(), tmp_path, host_json=managed) as hub:
        with pytest.raises(Exception, match="takes at most 100,000"):
            await hub.client.start_new("result_of", client_input="x" * LIMIT_BYTES)
        assert (await hub.run("result_of", LIMIT_BYTES - 2)).output == LIMIT_BYTES - 2
        failed = await hub.run("result_of", LIMIT_BYTES)
        assert "the result of activity 'blow_up' has 100,002 bytes" in failed.output
        failed = await hub.run("input_of", LIMIT_BYTES)
        assert "the input of activity 'measure' has 100,002 bytes" in failed.output


async def test_azure_storage_moves_large_payloads_to_blobs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with running(make_app(), tmp_path) as hub:
            assert (await hub.run("result_of", 50_000)).output == 50_000
            assert (await hub.run("result_of", 50_001)).output == 50_001
    told = [line for line in caplog.messages if "result of activity 'blow_up'" in line]
    assert len(told) == 1
