"""A poll of the pipelines' state: cheap while nothing changes, and right when something does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from azure.core.pipeline.transport import RequestsTransport

from handlers.landing.event_records import advance_newest_event
from handlers.landing.holding import Pause, begin_resumption, pause, release_held_batch
from handlers.operate.api import pipeline_changes, pipelines
from handlers.operate.api.documents import PipelineList
from handlers.operate.api.pipeline_changes import FOLDERS
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import LandingStatus
from orchestrations.names import landing_instance
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.platform.test_run_index import record
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.asking import ask
from tests.unit.orchestrations.examples import deploy

NOW = datetime.now(UTC)
COUNT = 5


@dataclass
class Page:
    """A page that polls the state of several pipelines."""

    zone: Zone
    hub: TaskHub = field(default_factory=TaskHub)
    requests: list[str] = field(default_factory=list[str])

    @property
    def pipelines(self) -> list[Pipeline]:
        names = [f"{self.zone.pipeline.name}-{number}" for number in range(COUNT)]
        return [self.zone.pipeline.model_copy(update={"name": name}) for name in names]

    async def poll(self) -> Mapping[str, Any]:
        """The answer; `requests` has the names or prefixes in the records container."""
        self.requests.clear()
        asked = (self.zone.clients, self.hub, *self.pipelines)
        answer = await ask(pipelines.list_pipelines, *asked, now=NOW)
        assert answer.status == 200
        return answer.document

    async def fresh(self) -> Mapping[str, Any]:
        """The answer for a caller who has never asked."""
        hub: Any = self.hub
        described: PipelineList = await pipelines._describe_all(  # pyright: ignore[reportPrivateUsage]
            self.zone.clients, {each.name: each for each in self.pipelines}, hub, now=NOW
        )
        return described.model_dump(mode="json")


@pytest.fixture
def page(zone: Zone) -> Iterator[Page]:
    page = Page(zone)
    for each in page.pipelines:
        deploy(zone.clients.settings.pipelines_folder, each)
    send = RequestsTransport.send

    def noted(self: Any, request: Any, **options: Any) -> Any:
        address = urlsplit(request.url)
        prefix = parse_qs(address.query).get("prefix")
        page.requests.append(prefix[0] if prefix else unquote(address.path.split("/", 3)[3]))
        return send(self, request, **options)

    with mock.patch.object(RequestsTransport, "send", noted):
        yield page


async def test_a_poll_lists_a_few_folders_whatever_the_number_of_pipelines(page: Page) -> None:
    first = await page.poll()
    assert len(page.requests) > COUNT * 4
    unwatched = {name.split("/")[0] for name in page.requests if not name.startswith(FOLDERS)}
    # Of runs, whose changes are in `run-changes/`; and the marker, whose events are listed.
    assert unwatched == {"run-index", page.zone.pipeline.name}
    assert await page.poll() == first
    assert sorted(page.requests) == sorted(FOLDERS)


async def test_every_change_is_in_the_next_answer(page: Page) -> None:
    name = page.pipelines[0].name
    zone = Zone(page.zone.clients, page.pipelines[0])
    clients = zone.clients

    def landing() -> None:
        status = LandingStatus(phase="settling", pipeline=name, opened_at=NOW)
        page.hub.add(landing_instance(name), "landing", custom_status=status.to_dict())

    def landed() -> None:
        page.hub.documents[landing_instance(name)]["runtimeStatus"] = "Completed"

    def hold() -> None:
        zone.land("1")
        later = NOW + timedelta(seconds=1)
        held.append(zone.hold(zone.close_batch(later, outcome="held"), "shrunk").version)

    held: list[str] = []
    changes: list[Callable[[], object]] = [
        lambda: advance_newest_event(clients, name, None, NOW),
        landing,
        landed,
        lambda: zone.close_batch(NOW),
        lambda: record(zone, 1, "registering", pipeline=name),
        lambda: record(zone, 1, "registering", "queued", pipeline=name),
        lambda: record(zone, 1, "registering", "queued", "failed", pipeline=name, error="x"),
        lambda: record(zone, 2, "registering", "queued", "succeeded", pipeline=name),
        lambda: pause(clients, name, Pause(by="ada", reason="a test", at=NOW)),
        lambda: begin_resumption(clients, name, at=NOW),
        hold,
        lambda: release_held_batch(clients, name, held[0], "it is meant so"),
    ]
    before = await page.poll()
    for change in changes:
        await asyncio.to_thread(change)
        after = await page.poll()
        assert after == await page.fresh()
        assert after != before or change is changes[0], changes.index(change)
        before = after


async def test_many_pages_at_once_cost_as_much_as_one(page: Page) -> None:
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(page.poll()) for _ in range(4)]
    assert len({repr(each.result()) for each in asked}) == 1
    described = [name for name in page.requests if name.startswith("run-index/all/")]
    assert len(described) == COUNT
    checked = [name for name in page.requests if name == "run-changes/"]
    assert len(checked) == 2  # the second one for those who asked during the first


async def test_a_description_ends_with_its_age(page: Page) -> None:
    clock, described = [0.0], list[int]()

    async def describe() -> int:
        described.append(len(described))
        return described[-1]

    async def at(seconds: float) -> int:
        clock[0] = seconds
        hub: Any = page.hub
        clients, age = page.zone.clients, pipeline_changes.AGE_LIMIT_SECONDS
        assert age < 100
        poll: Callable[..., Awaitable[int]] = pipeline_changes.describe_once
        return await poll(clients, hub, {}, describe, monotonic=lambda: clock[0])

    assert [await at(0), await at(50), await at(100), await at(101)] == [0, 0, 1, 1]
