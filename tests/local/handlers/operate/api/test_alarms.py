"""Alarms with storage and a Service Bus topic for the alerts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.functions import EventGridEvent

from handlers.landing.event_records import advance_newest_event
from handlers.operate.api import alarms
from handlers.operate.api.alarms import raise_alarms, read_alarms
from handlers.operate.job_events import handle_job_events
from handlers.platform.clients import Clients
from handlers.platform.run_records import add_to_record
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import Alarms, Pipeline
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunRecord
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.unit.orchestrations.examples import PIPELINE, run_status

NOW = datetime(2026, 11, 22, 3, tzinfo=UTC)
HOUR = timedelta(hours=1)
_NUMBERS = itertools.count()


@dataclass
class Watch:
    clients: Clients
    pipeline: Pipeline
    namespace: Namespace

    def round(self, *, hours: float = 0) -> tuple[list[str], list[str]]:
        """Evaluate the alarms at a time; return the kinds that began, and those that ended."""
        at = NOW + hours * HOUR
        changes = raise_alarms(self.clients, {self.pipeline.name: self.pipeline}, now=at)
        return [each.kind for each in changes.began], [each.kind for each in changes.ended]

    def data(self, *, hours: float) -> None:
        advance_newest_event(self.clients, self.pipeline.name, None, NOW + hours * HOUR)

    def run(self, state: RunState, *, hours: float) -> None:
        status = run_status(f"{self.pipeline.name}-aa-1", state, NOW + hours * HOUR)
        add_to_record(self.clients, RunRecord(status=status, started_at=NOW))

    def alerts(self) -> list[tuple[str, str]]:
        """(kind, alarm) of every alert about the pipeline since the last call."""
        self.clients.background.wait_until_idle()
        return [
            (str(message.subject), json.loads(str(message))["data"]["alarm"])
            for message in self.namespace.take_present("ops-alerts")
            if self.pipeline.name in str(message)  # a late alert may be of another test
        ]


@pytest.fixture
def watch(world: World, namespace: Namespace) -> Iterator[Watch]:
    number = next(_NUMBERS)
    settings = {**world.clients.settings.values, "RECORDS_CONTAINER": f"alarms-{number}"}
    clients = Clients(Settings(settings))
    world.lend_to(clients)
    clients.records.create_container()
    rules = Alarms(no_data_for_hours=6, run_waits_minutes=30)
    pipeline = PIPELINE.model_copy(update={"name": f"watch-{number}", "alarms": rules})
    yield Watch(clients, pipeline, namespace)
    clients.records.delete_container()


def test_an_alarm_is_one_alert_when_it_begins_and_one_when_it_is_over(watch: Watch) -> None:
    watch.data(hours=0)
    watch.run("queued", hours=0)
    assert watch.round() == ([], [])
    assert watch.round(hours=1) == (["run-waits"], [])
    assert watch.round(hours=2) == ([], [])
    watch.run("running", hours=2)
    assert watch.round(hours=3) == ([], ["run-waits"])
    assert watch.round(hours=7) == (["no-data"], [])
    (alarm,) = read_alarms(watch.clients)
    assert (alarm.kind, alarm.since) == ("no-data", NOW)
    watch.data(hours=7)
    assert watch.round(hours=8) == ([], ["no-data"])
    assert read_alarms(watch.clients) == []
    assert sorted(watch.alerts()) == [
        ("alarm-began", "no-data"),
        ("alarm-began", "run-waits"),
        ("alarm-over", "no-data"),
        ("alarm-over", "run-waits"),
    ]


def test_a_process_that_dies_before_it_writes_alerts_once(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.data(hours=0)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(alarms.record_store, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            watch.round(hours=7)
    watch.clients.background.wait_until_idle()
    assert watch.round(hours=8) == (["no-data"], [])
    assert watch.round(hours=9) == ([], [])
    assert watch.alerts() == [("alarm-began", "no-data")]


def test_without_azure_ml_an_alarm_stays_as_it_was(watch: Watch) -> None:
    rules = Alarms(model_older_than_days=1)
    watch.pipeline = watch.pipeline.model_copy(update={"alarms": rules})
    tags = {"landfall.dataset-version": "a"}
    context = SimpleNamespace(created_at=NOW - 30 * HOUR)
    model = SimpleNamespace(version="1", tags=tags, creation_context=context)

    def refuse(_: str) -> Any:
        raise HttpResponseError("busy")

    def give(_: str) -> list[Any]:
        return [model]

    registry = SimpleNamespace(list=give)
    vars(watch.clients)["ml"] = SimpleNamespace(models=registry)
    assert watch.round() == (["old-model"], [])
    registry.list = refuse
    assert watch.round(hours=1) == ([], [])
    context.created_at = NOW
    registry.list = give
    assert watch.round(hours=2) == ([], ["old-model"])


async def test_a_secret_of_key_vault_is_an_alarm_until_it_has_a_new_version(watch: Watch) -> None:
    hub: Any = None  # no run is woken

    async def raised(change: str, days: float) -> int:
        at = NOW + timedelta(days=days)
        expires = int((NOW + timedelta(days=30)).timestamp())
        data: dict[str, object] = {
            "VaultName": "kv-1",
            "ObjectName": watch.pipeline.name,
            "EXP": expires,
        }
        event = EventGridEvent(
            id="e1",
            topic="/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/kv-1",
            subject=watch.pipeline.name,
            event_type=f"Microsoft.KeyVault.{change}",
            event_time=at,
            data=data,
            data_version="1",
        )
        return await handle_job_events(watch.clients, {}, hub, [event], now=at)

    watch.pipeline = watch.pipeline.model_copy(update={"alarms": Alarms()})
    for _ in range(2):  # the event is delivered twice
        assert await raised("SecretNearExpiry", 0) == 0
        began, ended = watch.round()
        assert (began, ended) in ((["credential-expires"], []), ([], []))
    (alarm,) = read_alarms(watch.clients)
    assert f"secret {watch.pipeline.name} of key vault kv-1 expires at 2026-12-22" in alarm.message
    await raised("SecretExpired", 30)
    assert watch.round(hours=31 * 24) == ([], [])
    await raised("SecretNewVersionCreated", 31)
    assert watch.round(hours=32 * 24) == ([], ["credential-expires"])
    assert sorted(watch.alerts()) == [
        ("alarm-began", "credential-expires"),
        ("alarm-over", "credential-expires"),
    ]
