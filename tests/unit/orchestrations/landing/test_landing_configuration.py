"""Which configuration a batch is landed by, and what follows when it is deployed or removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestrations.configuration.parameters import Parameter, Value
from orchestrations.contracts.landing import LandingRequest, LandingResult
from orchestrations.names import landing_instance
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.examples import PIPELINE, with_rules
from tests.unit.orchestrations.landing.simulated_zone import UNMARKED, Zone, land, put_at

DEPLOYED = with_rules(UNMARKED, source={"include": ["*.jpg"]}, gate={"floor": 0.9})


def deploy(zone: Zone, pipeline: Any = DEPLOYED) -> None:
    zone.pipeline, zone.release = pipeline, "d" * 16


def test_a_zone_that_is_never_quiet_uses_what_is_deployed() -> None:
    """Data lands in each training, so that one landing goes on as new for ever."""
    zone = Zone()
    put_at(zone, *(number * 7.0 for number in range(180)))
    zone.driver.at(200.0, lambda: deploy(zone))
    zone.driver.run()
    assert zone.driver.instances[landing_instance("digits")].generations > 5
    for batch, listed in zip(zone.batches, zone.listed, strict=True):
        is_old = batch.dataset.frozen_at < START + timedelta(seconds=200)
        assert listed == (UNMARKED if is_old else DEPLOYED)
    assert zone.listed[0] == UNMARKED
    assert zone.listed[-1] == DEPLOYED
    assert len(zone.trained) == len(zone.listed)
    by_hash = {"c" * 16: UNMARKED, "d" * 16: DEPLOYED}
    assert [by_hash[str(each)] for each in zone.configurations] == zone.listed
    assert zone.gates == [each.gate for each in zone.listed]


def test_a_wait_ends_by_the_rules_that_are_deployed_meanwhile() -> None:
    zone = Zone(pipeline=with_rules(UNMARKED, settle={"quiet_seconds": 50.0}))
    put_at(zone, *map(float, range(0, 30, 5)))
    zone.driver.at(12.0, lambda: deploy(zone, with_rules(UNMARKED, settle={"quiet_seconds": 1.0})))
    zone.driver.run()
    assert zone.batches[0].dataset.frozen_at < START + timedelta(seconds=55)
    assert len(zone.trained) == 1


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


@pytest.mark.parametrize("at", [5.0, 30.0, 45.0])
def test_the_landing_of_a_pipeline_that_is_removed_ends_and_tells(at: float) -> None:
    """While it settles, while it trains, and before the follow-up of what landed meanwhile."""
    zone = Zone()
    put_at(zone, *([0.0] if at == 5.0 else [0.0, 32.0]))

    def remove() -> None:
        zone.is_deployed = False

    zone.driver.at(at, remove)
    zone.driver.run()
    instance = zone.driver.instances[landing_instance("digits")]
    assert (instance.error, instance.is_live) == (None, False)
    assert LandingResult.from_dict(instance.output).outcome == "not-deployed"
    (alert,) = zone.alerts
    assert alert.kind == "pipeline-not-deployed"
    assert alert.details["message"] == "pipelines/digits/pipeline.yml is not deployed"
    assert len(zone.trained) == (0 if at == 5.0 else 1)


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
