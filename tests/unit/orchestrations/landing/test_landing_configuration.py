"""Which configuration a batch is landed by."""

from __future__ import annotations

from typing import Any

from orchestrations.configuration.parameters import Parameter, Value
from orchestrations.contracts.landing import LandingRequest, LandingResult
from tests.unit.orchestrations.examples import PIPELINE, with_rules
from tests.unit.orchestrations.landing.simulated_zone import UNMARKED, Zone, land, put_at


class DeployedWhileListed(Zone):
    """A release with a marker replaces one without, after the activity was read."""

    def _freeze(self, request: Any) -> Any:
        if self.listings == 0:
            self.pipeline = PIPELINE
        return super()._freeze(request)


def test_a_listing_by_other_rules_than_those_of_the_wait_is_made_again() -> None:
    zone = DeployedWhileListed()
    land(zone, 0.0)
    assert (zone.trained, zone.batches) == ([], [])
    assert [alert.kind for alert in zone.alerts] == ["landing-overdue"]
    assert zone.alerts[0].details["marker"] == "_SUCCESS"


def test_a_request_whose_parameters_were_removed_meanwhile_ends_and_tells() -> None:
    declared = {"seed": Parameter(type="integer", default=0)}
    zone = Zone(pipeline=UNMARKED.model_copy(update={"parameters": declared}))
    put_at(zone, 0.0)
    requests: list[dict[str, Value]] = [{}, {"seed": 8}, {"seed": 8}, {"sed": 8}]
    for number, given in enumerate(requests):
        request = LandingRequest(
            pipeline="digits", opened_by="request", settled=True, parameters=given
        )
        zone.driver.at(
            1000.0 * (number + 1),
            lambda key=f"request-{number}", request=request: zone.driver.start(
                "landing", key, request.to_dict()
            ),
        )
    zone.driver.run()
    outcomes = [
        LandingResult.from_dict(zone.driver.instances[f"request-{number}"].output).outcome
        for number in range(4)
    ]
    assert outcomes == ["duplicate", "started", "duplicate", "not-deployed"]
    assert "parameter sed" in str(zone.alerts[-1].details["message"])


def test_the_input_of_the_release_before_is_read() -> None:
    document = LandingRequest(pipeline="digits", opened_by="event").to_dict()
    before = document | {"pipeline": PIPELINE.model_dump(mode="json")}
    assert LandingRequest.from_dict(before) == LandingRequest.from_dict(document)


def test_what_a_landing_and_its_freeze_are_started_with_has_no_content_of_a_pipeline() -> None:
    zone = Zone(pipeline=with_rules(UNMARKED, dataset={"freeze": "copy"}))
    put_at(zone, *(number * 7.0 for number in range(20)))
    inputs: list[str] = []
    for number in range(200):
        zone.driver.at(
            number,
            lambda: inputs.extend(
                str(each.execution.input_json)
                for each in zone.driver.instances.values()
                if each.execution.name in ("landing", "freezing")
            ),
        )
    zone.driver.run()
    assert any("is_copied" in each for each in inputs)
    assert not any("quiet_seconds" in each for each in inputs)
