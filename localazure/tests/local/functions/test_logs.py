"""The lines that a host logs about an app."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest


async def test_the_log_has_the_users_frames_of_a_failure_and_no_keys(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_app("http") as (_, client):
        async with client.get("/api/guarded", params={"code": "host-key"}) as response:
            assert response.status == 200
        async with client.get("/api/fails"):
            pass
    assert "Executed 'guarded' (Succeeded" in caplog.text
    assert "host-key" not in caplog.text
    assert "master-key" not in caplog.text
    (told,) = (one.getMessage() for one in caplog.records if one.levelno == logging.ERROR)
    assert "ValueError: as told" in told
    assert "function_app.py" in told
    assert "localazure" not in told.replace(str(Path(__file__).parent), "")


async def test_lines_of_a_functions_own_threads_belong_to_its_invocation(
    run_text: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = run_text("""
        import logging
        import threading

        def work(context):
            logging.getLogger("app").warning("before")
            context.thread_local_storage.invocation_id = context.invocation_id
            logging.getLogger("app").warning("after")

        @app.route(auth_level=func.AuthLevel.ANONYMOUS)
        def hello(req: func.HttpRequest, context: func.Context) -> str:
            thread = threading.Thread(target=work, args=(context,))
            thread.start()
            thread.join()
            return context.invocation_id
        """)
    async with app as (_, client), client.get("/api/hello") as response:
        invocation_id = await response.text()
    told = {one.getMessage(): vars(one)["correlation"] for one in caplog.records}
    assert told["before"] == ""
    assert told["after"] == f"[hello {invocation_id}] "
