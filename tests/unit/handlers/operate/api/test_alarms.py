from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from handlers.operate.alarm_rules import Alarm, AlarmKind
from handlers.operate.api import alarms
from handlers.operate.api.alarms import LETTERS_LIMIT, RECORD, AlarmRecord, measure
from handlers.platform.bulkheads import Bulkhead
from handlers.platform.run_index import index_run
from handlers.platform.settings import Settings
from handlers.platform.telemetry import Telemetry
from tests.fakes.azure_ml import World, make_world
from tests.unit.handlers.platform.test_spans import run_record

# The fourth state of `run_record` begins 40 s after its first one.
NOW = datetime(2026, 11, 22, 1, tzinfo=UTC)
QUEUED_FOR_SECONDS = 3600 - 40
Values = dict[tuple[str, ...], float]


class DeadLetters:
    """A Service Bus client and a receiver, with three dead letters."""

    fault: Exception | None = None

    def get_queue_receiver(self, queue: str, *, sub_queue: str) -> DeadLetters:
        assert (queue, sub_queue) == ("rejected-runs", "deadletter")
        if self.fault is not None:
            raise self.fault
        return self

    def peek_messages(self, most: int, *, sequence_number: int) -> range:
        assert (most, sequence_number) == (LETTERS_LIMIT, 1)
        return range(3)

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def world(reader: InMemoryMetricReader) -> World:
    world = make_world()
    telemetry = Telemetry(Settings({}), metric_readers=[reader])
    vars(world.clients).update(telemetry=telemetry, service_bus=DeadLetters())
    return world


def measured(world: World, reader: InMemoryMetricReader) -> Values:
    """Measure; return (instrument, *attribute values) → the value that is sent."""
    measure(world.clients, ["digits", "signs"], now=NOW)
    data = reader.get_metrics_data()
    if data is None:
        return {}
    (sender,) = data.resource_metrics
    found: Values = {}
    for metric in sender.scope_metrics[0].metrics:
        for point in metric.data.data_points:
            value: Any = point
            found[metric.name, *map(str, (point.attributes or {}).values())] = value.value
    return found


def test_waiting_runs_dead_letters_and_alarms_are_measured_until_they_end(
    world: World, reader: InMemoryMetricReader
) -> None:
    index_run(world.clients.records, run_record("queued"))
    alarm = Alarm(kind="no-data", pipeline="signs", about="signs", since=NOW, message="no data")
    world.records.blobs[RECORD] = json.dumps(AlarmRecord(active=(alarm,)).to_dict()).encode()
    kinds: Values = {("landfall.alarm.active", kind): 0 for kind in get_args(AlarmKind)}
    assert measured(world, reader) == {
        ("landfall.run.active", "digits", "queued"): 1,
        ("landfall.run.wait.age", "digits"): QUEUED_FOR_SECONDS,
        ("landfall.run.wait.age", "signs"): 0,
        ("landfall.dead_letter.count",): 3,
        **kinds,
        ("landfall.alarm.active", "no-data"): 1,
    }
    # The alarm and the run have ended.
    world.records.blobs[RECORD] = json.dumps(AlarmRecord().to_dict()).encode()
    index_run(world.clients.records, run_record("succeeded"))
    found = measured(world, reader)
    assert found["landfall.alarm.active", "no-data"] == 0
    assert ("landfall.run.active", "digits", "queued") not in found
    assert found["landfall.run.wait.age", "digits"] == 0


def test_a_service_bus_that_fails_costs_one_measurement(
    world: World, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    letters: Any = world.clients.service_bus
    letters.fault = ServiceBusConnectionError(message="Endpoint=sb://secret")
    with caplog.at_level(logging.WARNING, logger="landfall"):
        found = measured(world, reader)
    assert ("landfall.dead_letter.count",) not in found
    assert found["landfall.alarm.active", "no-data"] == 0
    assert caplog.messages[0] == "dead letters were not counted: ServiceBusConnectionError"
    assert "secret" not in caplog.text
    letters.fault = None
    assert measured(world, reader)["landfall.dead_letter.count",] == 3


def test_a_service_bus_that_hangs_costs_one_measurement(
    world: World,
    reader: InMemoryMetricReader,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alarms, "PEEKS", Bulkhead("Service Bus", threads=1, limit_seconds=0.05))
    returns = threading.Event()
    letters: Any = world.clients.service_bus

    def hang(*_: object, **__: object) -> None:
        returns.wait(30)

    letters.peek_messages = hang
    with caplog.at_level(logging.WARNING, logger="landfall"):
        found = measured(world, reader)
    returns.set()
    assert ("landfall.dead_letter.count",) not in found
    assert found["landfall.alarm.active", "no-data"] == 0
    assert caplog.messages == ["dead letters were not counted: Unavailable"]


def test_without_telemetry_nothing_is_read(reader: InMemoryMetricReader) -> None:
    world = make_world()
    vars(world.clients).update(records=SimpleNamespace(), service_bus=SimpleNamespace())
    assert measured(world, reader) == {}
