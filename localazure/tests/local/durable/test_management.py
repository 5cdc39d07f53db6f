"""Instance management with the SDK's client and over the public HTTP API."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import azure.durable_functions as df
import pytest

from harness.task_hub import EARLY_EVENTS, KEYS, RunningHub, running, simple_app
from harness.waiting import eventually
from localazure.functions.durable.engine.instance import Execution, Instance
from localazure.functions.durable.store.store import Store

pytestmark = EARLY_EVENTS

Context = df.DurableOrchestrationContext


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with running(simple_app(), tmp_path) as hub:
        yield hub


async def test_start_on_a_live_id_and_on_a_finished_one(hub: RunningHub) -> None:
    await hub.client.start_new("waiting", "one")
    await hub.until("one", "Running")
    with pytest.raises(Exception, match="instance with the status Running already exists"):
        await hub.client.start_new("waiting", "one")
    await hub.client.raise_event("one", "go", 1)
    await hub.until("one")
    await hub.client.start_new("simple", "one")
    status = await hub.until("one", history=True)
    assert (status.name, status.output) == ("simple", 2)
    assert [event["EventType"] for event in status.historyEvents] == [
        "ExecutionStarted",
        "TaskCompleted",
        "ExecutionCompleted",
    ]
    assert status.historyEvents[1]["FunctionName"] == "double"
    assert status.historyEvents[1]["Result"] == 2


@pytest.mark.parametrize("provider", ["azureStorage", "azureManaged"])
async def test_starts_of_one_id_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """With Azure Storage, both report success and one input is used; the scheduler refuses one."""
    create, both = Store.create, asyncio.Barrier(2)

    async def create_together(store: Store, execution: Execution) -> None:
        await both.wait()
        await create(store, execution)

    monkeypatch.setattr(Store, "create", create_together)
    host_json = {"storageProvider": {"type": provider}}
    async with running(app := simple_app(), tmp_path, host_json=host_json) as hub:
        starts = [hub.client.start_new("waiting", "one", n) for n in range(2)]
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        assert outcomes.count("one") == (2 if provider == "azureStorage" else 1)
        await hub.client.raise_event("one", "go", 1)
        status = await hub.until("one")
    assert status.output == ["1", 42]
    assert app.count("double") == 1


# The SDK's client does not quote an id.
@pytest.mark.parametrize("bad", ["@entity@like", "x" * 101, "a%23b", "a/b", "a?b", "a%0ab"])
async def test_instance_ids_that_azure_refuses(hub: RunningHub, bad: str) -> None:
    with pytest.raises(Exception, match="nstance IDs must"):
        await hub.client.start_new("simple", bad)


async def test_terminate_reaches_sub_orchestrations(tmp_path: Path) -> None:
    app = simple_app()

    @app.orchestrator
    def outer(context: Context) -> Any:
        yield context.call_sub_orchestrator("waiting", instance_id="inner")

    async with running(app, tmp_path) as hub:
        await hub.client.start_new("outer", "outer")
        await eventually(lambda: app.count("waiting") == 1)
        await hub.client.terminate("outer", "enough of it")
        outer_status, inner_status = await hub.until("outer"), await hub.until("inner")
        await hub.client.terminate("outer", "again")  # 410, which the SDK treats as success
        with pytest.raises(Exception, match="No instance"):
            await hub.client.terminate("nobody", "x")
    for status in (outer_status, inner_status):
        assert (status.runtime_status.value, status.output) == ("Terminated", "enough of it")


async def test_a_suspended_instance_stays_suspended_over_a_restart(tmp_path: Path) -> None:
    app = simple_app()
    async with running(app, tmp_path) as hub:
        await hub.client.start_new("waiting", "one")
        await hub.client.suspend("one", "lunch")
        await hub.until("one", "Suspended")
        await hub.client.raise_event("one", "go", "x")
        await hub.client.suspend("one", "still lunch")
    async with running(app, tmp_path) as hub:
        assert (await hub.until("one", "Suspended")).output is None
        await hub.client.resume("one", "back")
        assert (await hub.until("one")).output == ['"x"', 42]


async def test_rewind_runs_the_failed_step_again(tmp_path: Path) -> None:
    """A rewind is one transaction: otherwise a child could end while its parent is still failed."""
    app = simple_app()
    broken = True

    @app.activity
    def fragile(number: int) -> int:
        if broken:
            raise OSError("disk on fire")
        return number

    @app.orchestrator
    def inner(context: Context) -> Any:
        retry = df.RetryOptions(5, 2)
        return (yield context.call_activity_with_retry("fragile", retry, context.get_input()))

    @app.orchestrator
    def outer(context: Context) -> Any:
        first = yield context.call_activity("double", 1)
        children = [context.call_sub_orchestrator("inner", n, f"in-{n}") for n in range(30)]
        rest = yield context.task_all([context.call_activity("double", 5), *children])
        return [first, *rest]

    async with running(app, tmp_path) as hub:
        await hub.client.start_new("outer", "out")
        assert "disk on fire" in (await hub.until("out")).output
        broken = False
        answers = await asyncio.gather(
            *(hub.client.rewind("out", "extinguished") for _ in range(2)), return_exceptions=True
        )
        # The second rewind finds a running instance, which is an error only for its client.
        assert sum(answer is None for answer in answers) == 1
        assert (await hub.until("out", "Completed")).output == [2, 10, *range(30)]
        assert app.count("double") == 2  # the successful activity did not run again
        with pytest.raises(Exception, match="only supported on failed"):
            await hub.client.rewind("out", "again")
        with pytest.raises(Exception, match="No instance"):
            await hub.client.rewind("nobody", "x")


async def test_restart(hub: RunningHub) -> None:
    await hub.run("simple", instance_id="one")
    answer = await hub.client.restart("one")
    assert (await hub.until(answer["id"])).output == 2
    assert answer["id"] != "one"
    same = await hub.client.restart("one", restart_with_new_instance_id=False)
    assert same["id"] == "one"
    assert (await hub.until("one")).output == 2
    with pytest.raises(Exception, match="No instance"):
        await hub.client.restart("nobody")


async def test_queries_and_purges_are_done_in_pages(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localazure.functions.durable.store.store.PAGE_SIZE", 3)
    lengths: list[int] = []
    query = Store.query

    def watched(self: Store, *arguments: Any, **named: Any) -> list[Instance]:
        found = query(self, *arguments, **named)
        lengths.append(len(found))
        return found

    monkeypatch.setattr(Store, "query", watched)
    now, hour = datetime.now(UTC), timedelta(hours=1)
    await hub.client.start_new("waiting", "live")
    done = [f"done-{number}" for number in range(7)]
    for name in done:
        await hub.run("simple", instance_id=name)
    await hub.until("live", "Running")

    async def ids(**conditions: Any) -> list[str]:
        found = await hub.client.get_status_by(**conditions)
        return sorted(status.instance_id for status in found)

    everything = await hub.client.get_status_all()
    assert sorted(one.instance_id for one in everything) == [*done, "live"]
    running_only = [df.OrchestrationRuntimeStatus.Running]
    assert await ids(runtime_status=running_only) == ["live"]
    assert await ids(instance_id_prefix="done-") == done
    assert await ids(created_time_from=now + hour) == []
    assert await ids(created_time_to=now + hour) == [*done, "live"]

    assert (await hub.client.purge_instance_history("done-0")).instances_deleted == 1
    assert (await hub.client.purge_instance_history("done-0")).instances_deleted == 0
    assert not await hub.client.get_status("done-0")
    with pytest.raises(Exception, match="412"):
        await hub.client.purge_instance_history("live")
    for deleted in (6, 0):
        purged = await hub.client.purge_instance_history_by(created_time_from=now - hour)
        assert purged.instances_deleted == deleted
    assert await ids(created_time_to=now + hour) == ["live"]
    assert max(lengths) == 3


async def test_public_api_pages_and_wants_its_key(hub: RunningHub) -> None:
    url = f"{hub.base_url}/runtime/webhooks/durabletask"
    for refused in ("", "?code=wrong"):
        async with hub.http.get(f"{url}/instances{refused}") as answer:
            assert answer.status == 401
    headers = {"x-functions-key": KEYS.system}
    for n in range(5):
        start = f"{url}/orchestrators/simple/i{n}"
        async with hub.http.post(start, headers=headers, data="3") as answer:
            assert answer.status == 202
            assert answer.headers["Retry-After"] == "10"
            assert (await answer.json())["id"] == f"i{n}"
        await hub.until(f"i{n}")
    seen: list[str] = []
    token = ""
    for _ in range(3):
        async with hub.http.get(
            f"{url}/instances?top=2&runtimeStatus=Completed,Failed",
            headers={**headers, "x-ms-continuation-token": token},
        ) as answer:
            seen += [line["instanceId"] for line in await answer.json()]
            token = answer.headers["x-ms-continuation-token"]
    async with hub.http.get(f"{url}/instances?top=many", headers=headers) as answer:
        assert answer.status == 400
    assert (seen, token) == ([f"i{n}" for n in range(5)], "")


async def test_a_body_that_no_parser_reads_is_refused(hub: RunningHub) -> None:
    url = f"{hub.base_url}/durabletask"
    instance_id = await hub.client.start_new("waiting", "one")
    deep = "[" * 100_000 + "]" * 100_000
    for path in (f"instances/{instance_id}/raiseEvent/go", "orchestrators/simple/deep"):
        for body, content_type, complaint in (
            (deep, "application/json", "nested too deeply"),
            ("1", "application/json; charset=klingon,charset=utf-8", "klingon"),
            ("[", "application/json; charset=utf-8; charset=klingon", "Invalid JSON"),
        ):
            headers = {"Content-Type": content_type}
            async with hub.http.post(f"{url}/{path}", data=body, headers=headers) as answer:
                assert answer.status == 400
                assert complaint in (await answer.json())["ExceptionMessage"]
    headers = {"x-ms-continuation-token": base64.b64encode(b"[" * 3000).decode()}
    async with hub.http.get(f"{url}/instances?top=1", headers=headers) as answer:
        assert answer.status == 400


async def test_links_of_a_start_work_as_they_are(hub: RunningHub) -> None:
    instance_id = await hub.client.start_new("waiting", "one")
    links = hub.client.create_http_management_payload(instance_id)
    async with hub.http.get(links["statusQueryGetUri"]) as answer:
        assert answer.status == 202
        assert answer.headers["Retry-After"] == "5"
    event = links["sendEventPostUri"].replace("{eventName}", "go")
    for content_type, complaint in (
        ("text/plain", "Only application/json"),
        ("application/json; charset=klingon", "klingon"),
    ):
        headers = {"Content-Type": content_type}
        async with hub.http.post(event, data=b"1", headers=headers) as answer:
            assert answer.status == 400
            assert complaint in (await answer.json())["ExceptionMessage"]
    async with hub.http.post(event, json={"once": "encoded"}) as answer:
        assert answer.status == 202
    await hub.until(instance_id)
    async with hub.http.get(links["statusQueryGetUri"] + "&showInput=false") as answer:
        assert answer.status == 200
        assert (await answer.json())["output"] == [{"once": "encoded"}, 42]
    async with hub.http.delete(links["purgeHistoryDeleteUri"]) as answer:
        assert await answer.json() == {"instancesDeleted": 1}
    assert quote(KEYS.system, safe="") in links["statusQueryGetUri"]


async def test_failed_instance_as_http_error_when_asked(hub: RunningHub) -> None:
    status = await hub.run("failing", instance_id="f")
    assert status.output == "Orchestrator function 'failing' failed: ValueError: as told"
    for query, code in (("", 200), ("?returnInternalServerErrorOnFailure=true", 500)):
        async with hub.http.get(f"{hub.base_url}/durabletask/instances/f{query}") as answer:
            assert answer.status == code
