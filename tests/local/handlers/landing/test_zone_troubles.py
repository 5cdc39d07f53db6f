from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from handlers.landing import zone_troubles
from handlers.landing.zone_troubles import (
    OPEN_LIMIT,
    Trouble,
    alert_operators,
    read_troubles,
)
from handlers.platform import record_store
from orchestrations.contracts.landing import AlertOperators, BatchOutcome, LandingAlert
from orchestrations.names import alert_id, landing_instance
from tests.local.handlers.zone_on_storage import Zone

NOW = datetime(2026, 11, 27, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def occur(
    zone: Zone,
    at: datetime,
    kind: LandingAlert = "landing-failed",
    cause: str = "403",
    partition: str | None = None,
) -> None:
    landing = landing_instance(zone.pipeline.name, partition)
    request = AlertOperators(
        kind=kind,
        alert_id=alert_id(kind, landing, cause),
        pipeline=zone.pipeline.name,
        at=at,
        details={"landing": landing, "message": f"refused: {cause}"},
    )
    alert_operators(zone.clients, request)


def alerts(zone: Zone) -> list[str]:
    """The ids of the alerts that were sent: here they stay in the outbox, without a namespace."""
    zone.clients.background.wait_until_idle()
    kept = record_store.read_all(zone.clients.records, "outbox/ops-alerts/")
    return sorted(each["message_id"] for each in kept)


def open_troubles(zone: Zone, partition: str | None = None) -> tuple[Trouble, ...]:
    return read_troubles(zone.clients).get(zone.pipeline.name, {}).get(partition, ())


def freeze(zone: Zone, at: datetime, outcome: BatchOutcome = "duplicate") -> None:
    zone.record(zone.freeze(at), outcome=outcome)


def test_a_cause_that_lasts_is_one_alert_with_a_count(zone: Zone) -> None:
    for hour in range(48):
        occur(zone, NOW + hour * 60 * MINUTE)
    (trouble,) = open_troubles(zone)
    assert (trouble.count, trouble.since) == (48, NOW)
    assert (trouble.until, trouble.message) == (NOW + 47 * 60 * MINUTE, "refused: 403")
    assert len(alerts(zone)) == 1


def test_another_cause_is_another_alert_and_neither_is_told_twice(zone: Zone) -> None:
    for number in range(6):
        occur(zone, NOW + number * MINUTE, cause=("403", "503")[number % 2])
    assert [each.count for each in open_troubles(zone)] == [3, 3]
    assert len(alerts(zone)) == 2


def test_what_occurs_again_after_a_batch_is_told_again(zone: Zone) -> None:
    zone.land("1.png")
    occur(zone, NOW)
    freeze(zone, NOW + MINUTE)
    assert open_troubles(zone) == ()
    occur(zone, NOW + 2 * MINUTE)
    assert len(alerts(zone)) == 2


@pytest.mark.parametrize(
    ("kind", "outcome", "is_open"),
    [
        ("landing-failed", "held", False),
        ("landing-overdue", "held", False),
        ("manifest-invalid", "duplicate", False),
        ("batch-held", "held", True),
        ("batch-held", "duplicate", False),
    ],
)
def test_a_frozen_batch_ends_a_trouble(
    zone: Zone, kind: LandingAlert, outcome: BatchOutcome, *, is_open: bool
) -> None:
    zone.land("1.png")
    occur(zone, NOW, kind)
    freeze(zone, NOW + MINUTE, outcome)
    assert bool(open_troubles(zone)) == is_open


def test_a_batch_that_was_frozen_before_ends_no_trouble(zone: Zone) -> None:
    zone.land("1.png")
    occur(zone, NOW)
    freeze(zone, NOW - MINUTE)
    assert len(open_troubles(zone)) == 1


def test_each_partition_has_its_own_troubles(zone: Zone) -> None:
    for key in ("2026-11-26", "2026-11-27"):
        occur(zone, NOW, partition=key)
    assert len(alerts(zone)) == 2
    assert len(open_troubles(zone, "2026-11-26")) == 1
    assert open_troubles(zone) == ()


def test_a_repeated_activity_is_counted_once_and_its_alert_is_sent(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # The process dies after it has recorded the trouble, before it has sent the alert.
    with monkeypatch.context() as patch:
        patch.setattr(zone_troubles, "send_in_background", die)
        with pytest.raises(KeyboardInterrupt):
            occur(zone, NOW)
    assert alerts(zone) == []
    for _ in range(2):
        occur(zone, NOW)
    assert [each.count for each in open_troubles(zone)] == [1]
    assert len(alerts(zone)) == 1


def test_errors_that_are_always_different_are_told_a_limited_number_of_times(zone: Zone) -> None:
    for number in range(OPEN_LIMIT + 5):
        occur(zone, NOW + number * MINUTE, cause=f"error {number}")
    assert len(alerts(zone)) == OPEN_LIMIT
