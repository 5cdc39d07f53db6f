"""When a batch is complete, and what the landing lists."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from orchestrations.names import landing_instance
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.examples import PIPELINE, with_rules
from tests.unit.orchestrations.landing.simulated_zone import UNMARKED, Zone, land, put_at


def copied(zone_is_overtaken: int) -> Zone:
    return Zone(
        pipeline=with_rules(UNMARKED, dataset={"freeze": "copy"}), overtaken=zone_is_overtaken
    )


def test_a_freeze_that_is_overtaken_is_made_again_after_the_quiet_time() -> None:
    zone = copied(2)
    land(zone, 0.0)
    assert (zone.listings, len(zone.trained), zone.alerts) == (3, 1, [])
    assert zone.batches[0].dataset.frozen_at >= START + timedelta(seconds=30)


def test_a_zone_that_overtakes_each_freeze_is_reported_and_not_copied_for_ever() -> None:
    zone = copied(1_000_000)
    land(zone, 0.0)
    assert (zone.trained, zone.batches) == ([], [])
    (alert,) = zone.alerts
    assert (alert.kind, alert.details["cause"]) == ("landing-overdue", "overwritten-while-copied")
    assert zone.listings < 15


# --- markers --------------------------------------------------------------------------------------


def marked(**settle: Any) -> Zone:
    return Zone(pipeline=with_rules(PIPELINE, settle=settle))


def test_without_its_marker_a_batch_is_overdue_and_trained_on_when_it_comes() -> None:
    zone = marked()
    land(zone, 0.0, 1.0)
    assert (zone.trained, zone.batches, zone.listings) == ([], [], 0)
    (alert,) = zone.alerts
    assert alert.kind == "landing-overdue"
    assert alert.details["marker"] == "_SUCCESS"
    assert not zone.driver.instances[landing_instance("digits")].is_live
    zone.put_marker()
    zone.driver.run()
    assert zone.outcomes == ["started"], "it is whole, though late"


def test_operators_are_alerted_once_about_one_batch() -> None:
    """The upload pauses for longer than the quiet time."""
    zone = marked()
    land(zone, *range(0, 1000, 20), marker=1000.0)
    assert len({alert.alert_id for alert in zone.alerts}) == 1
    assert [batch.dataset.blobs for batch in zone.batches] == [50]


def test_a_marker_whose_event_is_lost_is_found_at_the_maximum_wait() -> None:
    zone = marked()
    put_at(zone, 0.0)
    zone.driver.at(5.0, lambda: zone.put_marker(with_event=False))
    zone.driver.run()
    assert (zone.alerts, zone.outcomes) == ([], ["started"])


def test_the_marker_of_the_last_batch_says_nothing_of_the_next() -> None:
    zone = marked()
    put_at(zone, 0.0)
    zone.driver.at(1.0, zone.put_marker)
    land(zone, 100.0)
    assert zone.outcomes == ["started"]
    assert [alert.kind for alert in zone.alerts] == ["landing-overdue"]
