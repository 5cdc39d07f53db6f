from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from harness.waiting import eventually


@pytest.fixture
def console() -> Iterator[io.StringIO]:
    """The host's output through the root logger's handlers, in its format."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.setLevel(level)
    root.removeHandler(handler)


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


async def test_an_activity_with_an_output_may_return_plain_text(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app("durable") as (_, client):
        status = await outcome(client, "/api/start/texting")
    assert (status["runtimeStatus"], status["output"]) == ("Completed", "Message sent!")
    assert "twilioSms is not sent from this machine: hello, you" in caplog.text


async def test_orchestrators_queue_behind_blocking_activities(running_app: Any) -> None:
    async with running_app("durable", PYTHON_THREADPOOL_THREAD_COUNT="2") as (host, client):
        crowded = asyncio.create_task(outcome(client, "/api/start/crowded"))
        # Three activities want two threads: nothing else runs until one of them is released.
        while host.invoker.waiting_for_threads < 1:
            await asyncio.sleep(0.01)
        echo = asyncio.create_task(outcome(client, "/api/start/echo?input=anyone"))
        while host.invoker.waiting_for_threads < 2:
            await asyncio.sleep(0.01)
        assert not echo.done()
        async with client.get("/api/release") as response:  # async: it needs no thread
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
    assert [one.daemon for one in threads()] == [True] * 3  # nor does the end of the process


async def test_activities_run_twice_where_the_setting_says_so(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_app("durable", LOCALAZURE_RUN_ACTIVITIES_TWICE="true") as (_, client):
        await outcome(client, "/api/start/greetings?input=you")
        failing = await outcome(client, "/api/start/failing")
    lines = [one.getMessage() for one in caplog.records if one.name == "localazure.functions"]
    assert len([one for one in lines if one.startswith("Executed 'greet' (Succeeded")]) == 2
    # A failure was recorded: what happened before it cannot be told from a second run.
    assert len([one for one in lines if one.startswith("Executed 'fail' (Failed")]) == 1
    assert "ValueError: no x" in str(failing["output"])


async def test_replay_is_quiet_and_a_failed_activity_is_loud(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_app("durable") as (_, client):
        greetings = await outcome(client, "/api/start/greetings?input=you")
        await outcome(client, "/api/start/failing")
    assert greetings["output"] == ["Hello, you!", {"hello": "async"}]
    host = [one.getMessage() for one in caplog.records if one.name == "localazure.functions"]
    assert not [line for line in host if "greetings'" in line]
    assert [line for line in host if line.startswith("Executed 'greet' (Succeeded")]
    (failure,) = [line for line in host if line.startswith("Executed 'fail' (Failed")]
    assert failure.endswith("ValueError: no x")


async def test_a_failed_orchestration_is_told_once_with_the_users_own_traceback(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app("durable") as (_, client):
        status = await outcome(client, "/api/start/stumbling")
    assert status["output"] == "Orchestrator function 'stumbling' failed: the outcome"
    (told,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert told.startswith(status["output"])
    assert "KeyError: 'the reason'" in told
    assert "RuntimeError: the outcome" in told
    assert 'raise RuntimeError("the outcome") from error' in told
    assert "$OutOfProcData$" not in told
    assert "durable_functions" not in told


async def test_a_failed_operation_of_an_entity_is_told(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app("durable") as (_, client):
        async with client.post("/api/counter/one?operation=break") as response:
            assert response.status == 202
        await eventually(
            lambda: "operation 'break' of entity @counter@one failed: broken" in caplog.text
        )


async def test_an_activity_that_ends_the_process_fails(running_app: Any) -> None:
    async with running_app("durable") as (_, client):
        status = await outcome(client, "/api/start/leaving")
    assert "Activity function 'leave' failed: FunctionExitError" in str(status["output"])


async def test_lines_carry_the_instance_that_they_belong_to(
    running_app: Any, console: io.StringIO
) -> None:
    async with running_app("durable") as (_, client):
        status = await outcome(client, "/api/start/greetings?input=you")
        async with client.post("/api/counter/one") as response:
            assert response.status == 202
        await eventually(lambda: "counting" in console.getvalue())
    lines = console.getvalue().splitlines()

    def correlations(text: str) -> set[str]:
        ends = (line.partition("[")[2].partition("]")[0] for line in lines if text in line)
        return {correlation.split()[-1] for correlation in ends}

    assert correlations("replaying=") == {status["instanceId"]}
    assert correlations("] greeting") == {status["instanceId"]}
    assert correlations("Executed 'greet'") == {status["instanceId"]}
    assert correlations("] counting") == {"@counter@one"}


async def test_a_result_that_is_no_json_is_one_sentence(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app("durable") as (_, client):
        status = await outcome(client, "/api/start/asks_for_a_set")
    sentence = "activity 'give_a_set' returned a set that is not JSON"
    assert sentence in str(status["output"])
    assert "to_json" in str(status["output"])
    assert str(status["output"]).count(sentence) == 1
    (told,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert sentence in told
    assert "json/" not in told  # no frames of the json module


async def test_an_input_that_is_no_json_names_the_line_and_the_remedy(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app("durable") as (_, client):
        status = await outcome(client, "/api/start/gives_an_object")
    assert "the input of a step is not JSON. Give dicts, lists" in str(status["output"])
    (told,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert 'context.call_activity("greet", object())' in told
    assert "json/" not in told
    assert "direct cause" not in told


async def test_a_forgotten_yield_is_one_sentence(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app("durable") as (_, client):
        status = await outcome(client, "/api/start/forgets_yield")
        async with client.get("/admin/host/systemkeys?code=master-key") as response:
            names = [key["name"] for key in (await response.json())["keys"]]
    assert names == ["durabletask_extension"]
    assert "'forgets_yield' failed: Object of type AtomicTask is not JSON" in str(status["output"])
    assert "`yield` is missing before its call" in str(status["output"])
    (told,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "json/" not in told
