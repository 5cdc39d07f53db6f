"""What happens with a complete batch, and how its landing ends."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from orchestrations.contracts.landing import LandingRequest, SettlingZone
from orchestrations.names import landing_instance
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.landing.simulated_zone import Zone, land, put_at


def test_a_run_that_ends_well_begins_the_count_anew() -> None:
    zone = Zone()
    zone.ends_with = {"*": "DataChanged"}
    zone.driver.at(0.0, lambda: zone.put("1.png", "a"))
    zone.driver.at(60.0, zone.ends_with.clear)
    zone.driver.at(100.0, lambda: zone.put("1.png", "b"))
    zone.driver.run()
    assert (zone.outcomes[0], zone.outcomes[-1], zone.data_changed) == ("started", "started", 0)


class ReadWhileEventsCome(Zone):
    """A blob lands after the last read of the record, before the landing gets the answer."""

    def read_activity(self) -> SettlingZone:
        answer = super().read_activity()
        if self.phase == "closing" and len(self.blobs) == 1:
            self.driver.after(0.1, lambda: self.put("2.png"))
        return answer


def test_an_event_that_comes_while_the_record_is_read_a_last_time_is_not_lost() -> None:
    zone = ReadWhileEventsCome()
    zone.driver.latency = lambda: 0.5
    land(zone, 0.0)
    assert [batch.dataset.blobs for batch in zone.batches] == [1, 2]


def test_late_events_reopen_nothing() -> None:
    """99 copies of an event, a minute apart, after the training."""
    zone = Zone()
    put_at(zone, 0.0, 1.0)
    for number in range(99):
        late = 120.0 + number * 60.0
        zone.driver.at(late, lambda: zone.event(START + timedelta(seconds=1)))
    zone.driver.run()
    assert (zone.outcomes, zone.listings) == (["started"], 1)
    instance = zone.driver.instances[landing_instance("digits")]
    assert instance.generations == 1


def test_a_request_for_a_reason_trains_on_a_zone_that_only_lost_blobs() -> None:
    zone = Zone()
    land(zone, *map(float, range(20)))
    zone.delete("0000.00.png")
    for number, reason in enumerate([None, "digits_drift"]):
        request = LandingRequest(
            pipeline="digits", opened_by="request", settled=True, reason=reason
        )
        zone.driver.start("landing", f"request-digits-{number}", request.to_dict())
        zone.driver.run()
    assert zone.outcomes == ["started", "only-deletions", "started"]


def test_a_run_that_is_handed_over_while_it_waits_for_nodes_frees_the_zone() -> None:
    waited: list[str] = []

    def hand_over(context: Any) -> Generator[Any, Any, None]:
        waited.append(context.instance_id)
        yield context.create_timer(context.current_utc_datetime + timedelta(minutes=50))

    zone = Zone(retraining=hand_over)
    land(zone, 0.0, 100.0, 200.0)
    assert [batch.dataset.blobs for batch in zone.batches] == [1, 3]
    assert zone.outcomes == ["started", "started"]
    assert len(set(waited)) == 2
    assert zone.data_changed == 0
    assert zone.driver.instances[landing_instance("digits")].error is None


def test_a_run_goes_on_whose_batch_cannot_be_recorded() -> None:
    """Reconciliation opens the landing again, which finds the claim."""
    zone = Zone()
    put_at(zone, 0.0)
    zone.records_are_out = True
    zone.driver.run()
    landing_of = zone.driver.instances[landing_instance("digits")]
    assert "no answer" in (landing_of.error or "")
    assert zone.trained
    zone.records_are_out = False
    zone.open_landing()
    assert zone.reported == [landing_instance("digits")]
    zone.driver.run()
    assert zone.outcomes == ["duplicate"]
    assert len(zone.trained) == 1
