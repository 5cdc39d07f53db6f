from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.landing.manifest_parts import parts_folder
from handlers.operate.reconciliation.zones import GRACE, discard_abandoned_parts
from handlers.platform import record_store
from orchestrations.names import freezing_instance
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.durable_fake import TaskHub


def leave_parts(zone: Zone, freeze: str) -> str:
    for name in ("plan.json", "aaaa"):
        folder = parts_folder(zone.pipeline.name, freeze)
        record_store.replace(zone.clients.records, folder + name, {})
    return freezing_instance(zone.pipeline.name, freeze)


def kept(zone: Zone) -> set[str]:
    names = zone.clients.records.list_blob_names(name_starts_with="freezing/")
    return {name.split("/")[2] for name in names}


@pytest.mark.parametrize(
    ("age", "left"), [(GRACE / 2, {"given-up", "dead", "live"}), (GRACE * 2, {"live"})]
)
async def test_the_parts_of_freezes_that_were_given_up_are_deleted_after_a_day(
    zone: Zone, age: timedelta, left: set[str]
) -> None:
    hub: Any = TaskHub()
    instances = {name: leave_parts(zone, name) for name in ("given-up", "dead", "live")}
    hub.add(instances["dead"], "freezing", "Terminated")
    hub.add(instances["live"], "freezing", "Running")
    gone = {"given-up", "dead", "live"} - left
    for expected in (gone, set[str]()):
        found = await discard_abandoned_parts(zone.clients, hub, now=datetime.now(UTC) + age)
        assert set(found) == {instances[name] for name in expected}
    assert kept(zone) == left
