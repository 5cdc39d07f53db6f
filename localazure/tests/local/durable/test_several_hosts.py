"""Two hosts of one app, and the engine that they share, in this process."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from pathlib import Path
from typing import Any

import aiohttp
import azure.durable_functions as df
import pytest

from harness.task_hub import DurableApp, RunningHub, running, simple_app
from harness.waiting import eventually
from localazure.errors import StartError
from localazure.functions.durable.hosts.engine_server import serving
from localazure.functions.durable.store.store import Store
from localazure.functions.worker.thread_pool import thread_count
from localazure.processes.ports import unix_socket
from localazure.runtime.environment import ENGINE


@pytest.fixture
def address() -> Generator[Path]:
    with unix_socket() as drawn:
        yield drawn


def engine(address: Path, folder: Path) -> AbstractAsyncContextManager[None]:
    return serving(address, folder / "hub.db", folder)


def host(
    app: DurableApp, address: Path, folder: Path, **settings: Any
) -> AbstractAsyncContextManager[RunningHub]:
    return running(app, folder, app_settings={ENGINE: str(address)}, **settings)


def link_of(hub: RunningHub) -> Any:
    """The host's link to the engine, with its internals."""
    return hub.extension


def make_app(gate: threading.Event | None = None) -> DurableApp:
    """An app; its activity `held` waits for the gate."""
    app = simple_app()

    @app.orchestrator
    def chain(context: df.DurableOrchestrationContext) -> Any:
        number = yield context.call_activity("double", context.get_input())
        return (yield context.call_activity("double", number))

    @app.orchestrator
    def counting(context: df.DurableOrchestrationContext) -> Any:
        yield context.wait_for_external_event("go")
        return (yield context.call_entity(df.EntityId("counter", "one"), "add", 1))

    @app.entity
    def counter(context: df.DurableEntityContext) -> None:
        total = context.get_state(lambda: 0) + context.get_input()
        context.set_state(total)
        context.set_result(total)

    @app.orchestrator
    def patient(context: df.DurableOrchestrationContext) -> Any:
        return (yield context.call_activity("held", None))

    @app.activity
    def held(_: None) -> str:
        assert gate is not None
        gate.wait(30)
        return "released"

    return app


async def test_either_host_starts_and_answers_for_an_instance_and_both_run_steps(
    tmp_path: Path, address: Path
) -> None:
    apps = [make_app(), make_app()]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine(address, tmp_path))
        one, two = [await stack.enter_async_context(host(app, address, tmp_path)) for app in apps]
        for starter, asked in ((one, two), (two, one)):
            ids = [await starter.client.start_new("chain", client_input=5) for _ in range(20)]
            ends = await asyncio.gather(*map(asked.until, ids))
            assert [end.output for end in ends] == [20] * 20
        failed = await one.run("failing")
        assert "ValueError: as told" in failed.output
    assert all(app.count("double") for app in apps)
    assert sum(app.count("double") for app in apps) == 80


async def test_an_entity_counts_the_operations_of_all_hosts(tmp_path: Path, address: Path) -> None:
    ids = [f"waiting-{number}" for number in range(8)]
    async with engine(address, tmp_path), host(make_app(), address, tmp_path) as one:
        for instance_id in ids:
            await one.client.start_new("counting", instance_id)
        await asyncio.gather(*(one.until(instance_id, "Running") for instance_id in ids))
        async with host(make_app(), address, tmp_path) as two:
            for instance_id in ids:
                await two.client.raise_event(instance_id, "go", 1)
            ends = await asyncio.gather(*map(two.until, ids))
    assert sorted(end.output for end in ends) == list(range(1, 9))


async def test_a_host_that_leaves_ends_what_runs_and_the_other_one_does_the_rest(
    tmp_path: Path, address: Path
) -> None:
    gate = threading.Event()
    leaving, other = make_app(gate), make_app(gate)
    async with engine(address, tmp_path), AsyncExitStack() as stack:
        one = await stack.enter_async_context(host(leaving, address, tmp_path))
        await one.client.start_new("patient", "p")
        await eventually(lambda: leaving.count("held"))
        async with host(other, address, tmp_path) as two:
            closing_one = asyncio.create_task(stack.aclose())
            await eventually(lambda: link_of(one)._is_leaving)
            ids = [await two.client.start_new("chain", client_input=1) for _ in range(5)]
            await asyncio.gather(*map(two.until, ids))
            gate.set()
            assert (await two.until("p")).output == "released"
            await closing_one
    assert leaving.count("held") + other.count("held") == 1
    assert leaving.count("double") == 0


async def test_a_host_that_is_lost_within_a_step_has_it_done_by_another(
    tmp_path: Path, address: Path
) -> None:
    gate = threading.Event()
    lost, other = make_app(gate), make_app(gate)
    async with engine(address, tmp_path), AsyncExitStack() as stack:
        one = await stack.enter_async_context(host(lost, address, tmp_path))
        await one.client.start_new("patient", "p")
        await eventually(lambda: lost.count("held"))
        async with host(other, address, tmp_path) as two:
            link_of(one)._socket._response.connection.transport.abort()
            await eventually(lambda: lost.count("held") + other.count("held") == 2)
            gate.set()
            assert (await two.until("p")).output == "released"


async def test_an_engine_that_comes_back_has_the_same_hosts_and_all_work(
    tmp_path: Path, address: Path
) -> None:
    async with AsyncExitStack() as engines, AsyncExitStack() as hosts:
        await engines.enter_async_context(engine(address, tmp_path))
        one = await hosts.enter_async_context(host(make_app(), address, tmp_path))
        await one.client.start_new("waiting", "w")
        await one.until("w", "Running")
        await engines.aclose()
        asked = asyncio.create_task(one.client.get_status("w"))  # waits for the engine
        started = asyncio.create_task(one.client.start_new("chain", "c", 1))
        await engines.enter_async_context(engine(address, tmp_path))
        assert (await asked).runtime_status.value == "Running"
        assert await started == "c"
        await one.client.raise_event("w", "go", 7)
        assert (await one.until("w")).output == ["7", 42]
        assert (await one.until("c")).output == 4
        await hosts.aclose()


async def test_calls_that_have_not_begun_end_with_their_engine(
    tmp_path: Path, address: Path
) -> None:
    app, gate, begun = simple_app(), threading.Event(), list[int]()

    @app.orchestrator
    def wide(context: df.DurableOrchestrationContext) -> Any:
        return (yield context.task_all([context.call_activity("block", n) for n in range(20)]))

    @app.activity
    def block(number: int) -> int:
        begun.append(number)
        gate.wait(30)
        return number

    async with AsyncExitStack() as engines, AsyncExitStack() as hosts:
        await engines.enter_async_context(engine(address, tmp_path))
        one = await hosts.enter_async_context(host(app, address, tmp_path))
        await one.client.start_new("wide", "w")
        await eventually(lambda: len(begun) == thread_count({}))  # the others wait for a thread
        await engines.aclose()
        await eventually(lambda: not link_of(one)._running)
        in_vain = len(begun)
        gate.set()
        await engines.enter_async_context(engine(address, tmp_path))
        assert (await one.until("w")).output == list(range(20))
        await hosts.aclose()
    assert len(begun) == in_vain + 20


async def test_a_request_within_which_the_engine_ends_may_have_had_an_effect(
    tmp_path: Path, address: Path
) -> None:
    async with AsyncExitStack() as engines, AsyncExitStack() as hosts:
        await engines.enter_async_context(engine(address, tmp_path))
        one = await hosts.enter_async_context(host(make_app(), address, tmp_path))
        start = f"{one.base_url}/durabletask/orchestrators/waiting/w?timeout=60&pollingInterval=1"
        async with aiohttp.ClientSession() as http:
            asked = asyncio.create_task(http.post(start))
            await one.until("w", "Running")
            await engines.aclose()
            async with await asked as reply:
                assert reply.status == 503
        await engines.enter_async_context(engine(address, tmp_path))
        await one.until("w", "Running")
        await hosts.aclose()


async def test_a_task_hub_in_use_elsewhere_is_refused_by_name(
    tmp_path: Path, address: Path
) -> None:
    with closing(Store(tmp_path / "hub.db")):
        async with engine(address, tmp_path):
            with pytest.raises(StartError, match=r"hub\.db is in use by process"):
                async with host(make_app(), address, tmp_path):
                    pass


async def test_the_public_address_wants_a_key(tmp_path: Path, address: Path) -> None:
    async with engine(address, tmp_path), host(make_app(), address, tmp_path) as one:
        await one.run("chain", 1, instance_id="a:b")
        management = one.client.create_http_management_payload("a:b")
        async with aiohttp.ClientSession() as http:
            async with http.get(management["statusQueryGetUri"]) as reply:
                assert (await reply.json())["output"] == 4
            bare = management["statusQueryGetUri"].partition("?")[0]
            async with http.get(bare) as reply:
                assert reply.status == 401
            async with http.get(f"{one.base_url}/durabletask/instances/missing") as reply:
                assert reply.status == 404


async def test_a_compressed_or_chunked_body_arrives(tmp_path: Path, address: Path) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b"[1, "
        yield b"2]"

    async with engine(address, tmp_path), host(simple_app(), address, tmp_path) as one:
        for number, body in enumerate((gzip.compress(b"[1, 2]"), chunks())):
            headers = {"Content-Encoding": "gzip"} if isinstance(body, bytes) else {}
            start = f"{one.base_url}/durabletask/orchestrators/simple/{number}"
            async with one.http.post(start, data=body, headers=headers) as reply:
                assert reply.status == 202
            assert (await one.until(str(number))).input_ == [1, 2]


async def test_a_host_of_another_app_is_told(
    tmp_path: Path, address: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        engine(address, tmp_path),
        host(simple_app(), address, tmp_path),
        host(simple_app(), address, tmp_path),
    ):
        assert "other functions or settings" not in caplog.text
        async with host(make_app(), address, tmp_path):
            assert "other functions or settings" in caplog.text
