from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from harness.waiting import eventually


@pytest_asyncio.fixture
async def client(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of the running app."""
    caplog.set_level(logging.INFO)
    async with running_app("durable") as (_, client):
        yield client


async def outcome(client: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    """Start an orchestration and wait for its end through the management API."""
    async with client.post(path) as response:
        assert response.status == 202
        status_url = response.headers["Location"]

    async def ended() -> dict[str, Any] | None:
        async with client.get(status_url) as response:
            status = await response.json()
        return None if status["runtimeStatus"] in {"Pending", "Running"} else status

    return await eventually(ended)


def told_by_the_host(caplog: pytest.LogCaptureFixture, beginning: str) -> list[str]:
    """The log lines of the host that start with `beginning`."""
    lines = [one.getMessage() for one in caplog.records if one.name == "localazure.functions"]
    return [line for line in lines if line.startswith(beginning)]


async def test_an_activity_with_an_output_may_return_plain_text(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    status = await outcome(client, "/api/start/texting")
    assert (status["runtimeStatus"], status["output"]) == ("Completed", "Message sent!")
    assert "twilioSms is not sent from this machine: hello, you" in caplog.text


async def test_the_extension_has_a_system_key(client: aiohttp.ClientSession) -> None:
    async with client.get("/admin/host/systemkeys?code=master-key") as response:
        names = [key["name"] for key in (await response.json())["keys"]]
    assert names == ["durabletask_extension"]


async def test_orchestrators_queue_behind_blocking_activities(running_app: Any) -> None:
    async with running_app("durable", PYTHON_THREADPOOL_THREAD_COUNT="2") as (host, client):
        crowded = asyncio.create_task(outcome(client, "/api/start/crowded"))
        # Three activities need two threads: nothing else runs until one activity is released.
        while host.invoker.waiting_for_threads < 1:
            await asyncio.sleep(0.01)
        echo = asyncio.create_task(outcome(client, "/api/start/echo?input=anyone"))
        while host.invoker.waiting_for_threads < 2:
            await asyncio.sleep(0.01)
        assert not echo.done()
        async with client.get("/api/release") as response:  # async, so it needs no thread
            assert response.status == 200
        assert (await echo)["output"] == "anyone"
        assert (await crowded)["output"] == "through"


async def test_the_end_does_not_wait_for_activities_that_block(running_app: Any) -> None:
    def threads() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name.startswith("function-")]

    async with running_app("durable", drain_seconds=0.2) as (_, client):
        async with client.post("/api/start/crowded") as response:
            assert response.status == 202
        await eventually(lambda: len(threads()) == 3)
    assert [one.daemon for one in threads()] == [True] * 3  # daemons do not delay the exit


async def test_activities_run_twice_where_the_setting_says_so(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_app("durable", LOCALAZURE_RUN_ACTIVITIES_TWICE="true") as (_, client):
        await outcome(client, "/api/start/greetings?input=you")
        failing = await outcome(client, "/api/start/failing")
    assert len(told_by_the_host(caplog, "Executed 'greet' (Succeeded")) == 2
    # A failure is recorded without a second run.
    assert len(told_by_the_host(caplog, "Executed 'fail' (Failed")) == 1
    assert "ValueError: no x" in str(failing["output"])


async def test_replay_logs_nothing_and_a_failed_activity_logs_its_error(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    greetings = await outcome(client, "/api/start/greetings?input=you")
    await outcome(client, "/api/start/failing")
    assert greetings["output"] == ["Hello, you!", {"hello": "async"}]
    assert not [line for line in told_by_the_host(caplog, "") if "greetings'" in line]
    assert told_by_the_host(caplog, "Executed 'greet' (Succeeded")
    (failure,) = told_by_the_host(caplog, "Executed 'fail' (Failed")
    assert failure.endswith("ValueError: no x")


NOT_JSON = "activity 'give_a_set' returned a set that is not JSON"


@pytest.mark.parametrize(
    ("orchestrator", "in_output", "in_log"),
    [
        (
            "stumbling",
            "^Orchestrator function 'stumbling' failed: the outcome$",
            r"(?s)KeyError: 'the reason'.*raise RuntimeError\(\"the outcome\"\) from error",
        ),
        ("leaving", "Activity function 'leave' failed: FunctionExitError", "called sys.exit"),
        ("asks_for_a_set", NOT_JSON, f"{NOT_JSON}.*to_json"),
        (
            "gives_an_object",
            "the input of a step is not JSON. Give dicts, lists",
            r'context\.call_activity\("greet", object\(\)\)',
        ),
        (
            "forgets_yield",
            "Object of type AtomicTask is not JSON.*`yield` is missing before its call",
            "'forgets_yield' failed: ",
        ),
    ],
)
async def test_a_failure_is_told_once_with_the_users_own_frames(
    client: aiohttp.ClientSession,
    caplog: pytest.LogCaptureFixture,
    orchestrator: str,
    in_output: str,
    in_log: str,
) -> None:
    status = await outcome(client, f"/api/start/{orchestrator}")
    assert len(re.findall(in_output, str(status["output"]))) == 1
    (told,) = (one.getMessage() for one in caplog.records if one.levelno == logging.ERROR)
    assert re.search(in_log, told)
    assert not re.search(r"\$OutOfProcData\$|durable_functions|json/", told)
    assert ("direct cause" in told) == (orchestrator in {"stumbling", "leaving"})


async def test_a_failed_operation_of_an_entity_is_told(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.post("/api/counter/one?operation=break") as response:
        assert response.status == 202
    await eventually(
        lambda: "operation 'break' of entity @counter@one failed: broken" in caplog.text
    )


async def test_lines_carry_the_instance_that_they_belong_to(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    status = await outcome(client, "/api/start/greetings?input=you")
    async with client.post("/api/counter/one") as response:
        assert response.status == 202
    await eventually(lambda: "counting" in caplog.text)

    def instances(text: str) -> set[str]:
        found = (vars(one)["correlation"] for one in caplog.records if text in one.getMessage())
        return {correlation.strip("[] ").split()[-1] for correlation in found}

    for text in ("replaying=", "greeting", "Executed 'greet'"):
        assert instances(text) == {status["instanceId"]}
    assert instances("counting") == {"@counter@one"}
