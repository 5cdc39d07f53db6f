from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handlers.triggers.blob_created import ensure_landing
from orchestrations.activities import RESULT_KEY
from orchestrations.contracts.base import Done
from orchestrations.contracts.configurations import Configuration
from orchestrations.contracts.datasets import Dataset, FreezeManifest, Survey
from orchestrations.contracts.landing import (
    Claim,
    ClaimDataset,
    LandingRequest,
    LandingResult,
    LandingStatus,
    RecordWindow,
)
from orchestrations.contracts.retraining import RunInput
from orchestrations.contracts.runs import RunRequest
from orchestrations.landing import LOOKS_PER_GENERATION, landing
from orchestrations.manifest import ManifestLine
from orchestrations.names import dataset_version, landing_instance, zone_fingerprint
from orchestrations.pipeline import Pipeline
from tests.unit.orchestrations.examples import PIPELINE
from tests.unit.orchestrations.simulation import START, Simulation, finish

TRAINING_SECONDS = 30.0


@dataclass
class Zone:
    """A landing zone, its records, and a trainer that takes half a minute."""

    seed: int = 0
    blobs: dict[str, tuple[str, str, datetime]] = field(default_factory=dict)
    marker: datetime | None = None
    claims: dict[str, Claim] = field(default_factory=dict)
    windows: list[RecordWindow] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    requests: list[RunRequest] = field(default_factory=list)
    deployed: Pipeline = PIPELINE
    surveys: int = 0

    def __post_init__(self) -> None:
        latency = random.Random(self.seed)
        self.simulation = Simulation(
            activities={
                "survey_zone": self.survey,
                "freeze_manifest": self.freeze,
                "resolve_configuration": self.resolve,
                "claim_dataset": self.claim,
                "record_window": self.record,
            },
            latency=lambda: latency.uniform(0.01, 0.5),
            orchestrators={"landing": landing, "retraining": self.train},
        )

    def put(self, path: str, content: str, *, event_after: float | None = 0.0) -> None:
        now = self.simulation.now
        self.blobs[path] = (f"etag-{now.timestamp()}-{content}", content, now)
        if event_after is not None:
            self.simulation.after(event_after, self.hint)

    def put_marker(self) -> None:
        self.marker = self.simulation.now
        self.hint(look=True)

    def hint(self, *, look: bool = False) -> None:
        starter: Any = self.simulation  # stands in for the durable client
        finish(ensure_landing(starter, PIPELINE, opened_by="event", look=look))

    def lines(self) -> list[ManifestLine]:
        return [
            ManifestLine(path=path, size=1, md5=content, etag=etag)
            for path, (etag, content, _) in sorted(self.blobs.items())
        ]

    def fingerprint(self) -> str:
        return zone_fingerprint((line.path, line.etag) for line in self.lines())

    def survey(self, _: Any) -> Any:
        self.surveys += 1
        newest = max((when for _, _, when in self.blobs.values()), default=None)
        return _result(
            Survey(
                blobs=len(self.blobs),
                bytes=len(self.blobs),
                newest=newest,
                marker=self.marker,
                fingerprint=self.fingerprint(),
            )
        )

    def freeze(self, given: Any) -> Any:
        version = dataset_version(self.lines())
        return _result(
            Dataset(
                version=version,
                blobs=len(self.blobs),
                bytes=len(self.blobs),
                frozen_at=FreezeManifest.from_dict(given).frozen_at,
                fingerprint=self.fingerprint(),
                manifest_path=f"manifests/digits/{version}",
            )
        )

    def resolve(self, _: Any) -> Any:
        return _result(Configuration(hash="c0ffee", pipeline=self.deployed))

    def claim(self, given: Any) -> Any:
        request = ClaimDataset.from_dict(given)
        ours = Claim(run=request.run, window=request.window)
        return _result(self.claims.setdefault(request.request.dataset.version, ours))

    def record(self, given: Any) -> Any:
        self.windows.append(RecordWindow.from_dict(given))
        return _result(Done())

    def train(self, context: Any) -> Generator[Any, Any, str]:
        request = RunInput.from_dict(context.get_input()).request
        self.requests.append(request)
        self.trained.append(request.dataset.version)
        yield context.create_timer(
            context.current_utc_datetime + timedelta(seconds=TRAINING_SECONDS)
        )
        return "trained"

    @property
    def phase(self) -> str:
        status = self.simulation.instances[landing_instance("digits")].custom_status
        return LandingStatus.from_dict(status).phase


def _result(contract: Any) -> dict[str, Any]:
    return {RESULT_KEY: contract.to_dict()}


def at(zone: Zone, seconds: float, action: Any) -> None:
    zone.simulation.at(START + timedelta(seconds=seconds), action)


def test_a_run_has_the_configuration_that_is_in_force_at_the_freeze() -> None:
    """A floor that is raised while a landing is under way counts for its batch."""
    zone = Zone()
    zone.put("1.png", "x")
    gate = PIPELINE.gate.model_copy(update={"floor": 0.99})
    zone.deployed = PIPELINE.model_copy(update={"gate": gate})
    zone.simulation.run()
    (request,) = zone.requests
    assert request.pipeline.gate.floor == 0.99
    assert request.configuration == "c0ffee"


def test_a_burst_of_events_is_one_run_after_the_quiet_time() -> None:
    zone = Zone()
    for number in range(20):
        at(zone, number * 0.5, lambda number=number: zone.put(f"{number}.png", "x"))
    zone.simulation.run()
    assert len(zone.trained) == 1
    (window,) = zone.windows
    assert window.dataset.blobs == 20
    assert window.dataset.frozen_at >= START + timedelta(seconds=9.5 + 10)


def test_a_listing_that_takes_long_does_not_count_as_quiet_time() -> None:
    zone = Zone()
    zone.simulation.latency = lambda: 8.0
    for number in range(18):
        at(zone, number * 5.0, lambda number=number: zone.put(f"{number}.png", "x"))
    zone.simulation.run()
    assert [window.dataset.blobs for window in zone.windows] == [18]


def test_data_that_never_rests_is_frozen_at_the_maximum_wait() -> None:
    zone = Zone()
    for number in range(60):
        at(zone, number * 5.0, lambda number=number: zone.put(f"{number}.png", "x"))
    zone.simulation.run()
    first = zone.windows[0].dataset.frozen_at
    assert first - zone.windows[0].opened_at < timedelta(seconds=105)


def test_a_marker_ends_the_wait() -> None:
    zone = Zone()
    at(zone, 0.0, lambda: zone.put("1.png", "x"))
    at(zone, 2.0, zone.put_marker)
    zone.simulation.run()
    assert zone.windows[0].dataset.frozen_at < START + timedelta(seconds=5)


def test_what_lands_during_training_is_one_follow_up_run() -> None:
    zone = Zone()
    at(zone, 0.0, lambda: zone.put("1.png", "x"))
    for number in range(2, 10):
        at(zone, 15.0 + number, lambda number=number: zone.put(f"{number}.png", "x"))
    zone.simulation.run()
    assert [window.dataset.blobs for window in zone.windows] == [1, 9]
    assert len(zone.trained) == 2


def test_the_same_content_again_starts_nothing_and_names_the_run() -> None:
    zone = Zone()
    at(zone, 0.0, lambda: zone.put("1.png", "x"))
    at(zone, 500.0, lambda: zone.put("1.png", "x"))
    zone.simulation.run()
    assert len(zone.trained) == 1
    first, again = [window.result for window in zone.windows]
    assert (first.outcome, again.outcome) == ("started", "duplicate")
    assert again.run == first.run


def test_an_event_in_the_closing_phase_is_not_lost() -> None:
    zone = Zone()
    at(zone, 0.0, lambda: zone.put("1.png", "x"))

    def land_while_closing() -> None:
        if zone.phase == "closing":
            zone.put("2.png", "x")
        else:
            zone.simulation.after(0.7, land_while_closing)

    at(zone, 1.0, land_while_closing)
    zone.simulation.run()
    assert [window.dataset.blobs for window in zone.windows] == [1, 2]


def test_a_requested_landing_freezes_at_once_and_looks_for_nothing_more() -> None:
    zone = Zone()
    zone.put("1.png", "x", event_after=None)
    request = LandingRequest(pipeline=PIPELINE, opened_by="request", settled=True)
    instance = zone.simulation.start("landing", "request-digits-1", request.to_dict())
    zone.simulation.run()
    assert LandingResult.from_dict(instance.output).outcome == "started"
    assert zone.surveys == 0
    assert len(zone.trained) == 1


def test_an_empty_zone_ends_without_a_claim() -> None:
    zone = Zone()
    at(zone, 0.0, zone.hint)
    zone.simulation.run()
    assert [window.result.outcome for window in zone.windows] == ["empty"]
    assert not zone.claims


def test_a_broken_run_does_not_stop_the_zone() -> None:
    zone = Zone()

    def broken(_context: Any) -> Generator[Any, Any, Any]:
        raise RuntimeError("terminated")
        yield

    zone.simulation.orchestrators["retraining"] = broken
    at(zone, 0.0, lambda: zone.put("1.png", "x"))
    zone.simulation.run()
    assert not zone.simulation.instances[landing_instance("digits")].live
    assert zone.simulation.instances[landing_instance("digits")].error is None


def test_a_long_trickle_goes_on_in_new_generations_and_keeps_its_deadline() -> None:
    zone = Zone()
    rules = PIPELINE.settle.model_copy(update={"maximum_wait_seconds": 5000.0})
    pipeline = PIPELINE.model_copy(update={"settle": rules})
    for number in range(1200):
        at(zone, number * 5.0, lambda number=number: zone.put(f"{number}", "x", event_after=None))
    request = LandingRequest(pipeline=pipeline, opened_by="event")
    at(zone, 0.0, lambda: zone.simulation.start("landing", "landing-digits", request.to_dict()))
    zone.simulation.run()
    instance = zone.simulation.instances["landing-digits"]
    assert instance.generations > 5000 / 10 / LOOKS_PER_GENERATION
    assert timedelta(seconds=5000) <= zone.windows[0].dataset.frozen_at - START
    assert zone.windows[0].dataset.frozen_at - START < timedelta(seconds=5060)


writes = st.lists(
    st.tuples(
        st.floats(0, 400),  # when
        st.integers(0, 5),  # which blob
        st.sampled_from("abc"),  # what content
        st.floats(0, 60),  # how late its event comes
        st.integers(1, 3),  # how often
    ),
    min_size=1,
    max_size=30,
)


@given(writes=writes, seed=st.integers(0, 1000))
def test_one_run_per_distinct_content_and_nothing_left_behind(
    writes: list[tuple[float, int, str, float, int]], seed: int
) -> None:
    zone = Zone(seed)
    for when, blob, content, late, copies in writes:

        def write(
            blob: int = blob, content: str = content, late: float = late, copies: int = copies
        ) -> None:
            zone.put(f"{blob}.png", content, event_after=late)
            for copy in range(1, copies):
                zone.simulation.after(late * copy, zone.hint)

        at(zone, when, write)
    zone.simulation.run()
    assert len(zone.trained) == len(set(zone.trained))
    assert dataset_version(zone.lines()) in zone.trained
    assert all(not instance.live for instance in zone.simulation.instances.values())
    assert all(instance.error is None for instance in zone.simulation.instances.values())
