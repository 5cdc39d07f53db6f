"""A landing zone under a virtual clock: its blobs, its records, and what its activities answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

from handlers.landing import blob_created
from handlers.landing.blob_created import ensure_landing
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Contract, Done, Failure
from orchestrations.contracts.datasets import (
    CommitStep,
    Configuration,
    Dataset,
    FreezeManifest,
    FreezeStart,
    Piece,
)
from orchestrations.contracts.landing import (
    AlertOperators,
    BatchComparison,
    ClaimDataset,
    DatasetClaim,
    LandingStatus,
    RecordBatch,
    SettlingRules,
    SettlingZone,
)
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import RunInput
from orchestrations.errors import DataChanged
from orchestrations.landing.decisions import LastRound, why_no_further_round
from orchestrations.landing.freezing import freezing
from orchestrations.landing.landing import landing
from orchestrations.landing.settling import was_listed
from orchestrations.names import landing_instance, training_name
from tests.unit.orchestrations.driver import Driver, answered_by, finish
from tests.unit.orchestrations.examples import PIPELINE, run_status, version_of, with_rules

TRAINING_SECONDS = 30.0
# Type of the job's error → the state in which the run ends.
STATES: dict[str | None, RunState] = {
    None: "succeeded",
    "DataChanged": "superseded",
    "DataRejected": "rejected",
}
NO_CLIENTS: Any = None
UNMARKED = with_rules(PIPELINE, source={"marker": None})


@dataclass
class Zone:
    """A landing zone, its records, and a trainer that takes half a minute."""

    seed: int = 0
    pipeline: Pipeline = UNMARKED
    """The deployed one."""
    blobs: dict[str, tuple[str, str, datetime]] = field(default_factory=dict)
    marker: datetime | None = None
    newest_event: datetime | None = None
    claims: dict[str, DatasetClaim] = field(default_factory=dict)
    """By the name of the round."""
    claimed_with: dict[str, RunRequest] = field(default_factory=dict)
    """Round → the request that it was claimed with."""
    run_states: dict[str, RunState] = field(default_factory=dict)
    """Run → the state that its record has."""
    batches: list[RecordBatch] = field(default_factory=list)
    data_changed: int = 0
    alerts: list[AlertOperators] = field(default_factory=list)
    reported: list[str] = field(default_factory=list[str])
    """Landings that had failed when they were opened again."""
    trained: list[str] = field(default_factory=list)
    ends_with: dict[str, str] = field(default_factory=dict)
    """Dataset version → type of the error that its run ends with."""
    listings: int = 0
    overtaken: int = 0
    """Number of freezes that fail because blobs change while they are copied."""
    records_are_out: bool = False
    contents: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    retraining: Callable[[Any], Any] | None = None
    """Replaces the orchestrator `retraining`."""

    def __post_init__(self) -> None:
        latency = random.Random(self.seed)
        self.driver = Driver(
            activities=answered_by(self._answer),
            latency=lambda: latency.uniform(0.01, 0.5),
            orchestrators={
                "landing": landing,
                "freezing": freezing,
                "retraining": self.retraining or self.train,
            },
        )

    def put(self, path: str, content: str = "x", *, event_after: float | None = 0.0) -> None:
        now = self.driver.now
        self.blobs[path] = (f"etag-{now.timestamp()}-{content}", content, now)
        if event_after is not None:
            self.driver.after(event_after, lambda: self.event(now))

    def delete(self, path: str) -> None:
        del self.blobs[path]

    def put_marker(self, *, with_event: bool = True) -> None:
        self.marker = self.driver.now
        if with_event:
            self.event(self.marker, wake=True)

    def event(self, written_at: datetime, *, wake: bool = False) -> None:
        """Handle an event as the trigger does."""
        last = self.batches[-1].dataset.frozen_at if self.batches else None
        if last is not None and was_listed(written_at, listed_from=last):
            return
        if self.newest_event is None or written_at > self.newest_event:
            self.newest_event = written_at
        self.open_landing(wake=wake)

    def open_landing(self, *, wake: bool = False) -> None:
        starter = self.driver.client

        async def report(_: object, instance: DurableOrchestrationStatus) -> None:
            self.reported.append(str(instance.instance_id))

        with mock.patch.object(blob_created, "report", report):
            opening = ensure_landing(
                NO_CLIENTS, starter, self.pipeline, opened_by="event", wake=wake
            )
            finish(opening)

    def lines(self) -> list[ManifestLine]:
        return [
            ManifestLine(path=path, size=1, md5=content, etag=etag)
            for path, (etag, content, _) in sorted(self.blobs.items())
        ]

    def _answer(self, name: str, request: Any) -> Contract:  # noqa: C901 - one case an activity
        match name:
            case "read_zone_activity":
                return self.read_activity()
            case "freeze_manifest":
                return self._freeze(request)
            case "copy_blobs":
                self.overtaken -= 1
                if self.overtaken >= 0:
                    raise DataChanged("1 of 1 blobs was written")
                return Piece(marker=None)
            case "commit_manifest":
                return CommitStep(dataset=self.dataset(request.frozen_at))
            case "compare_batch":
                return self._compare(request.dataset)
            case "alert_operators":
                self.alerts.append(request)
            case "claim_dataset":
                return self._claim(request)
            case "record_batch":
                if self.records_are_out:
                    raise ConnectionError("no answer")
                self.batches.append(request)
            case "count_data_changed":
                self.data_changed = request.in_a_row
            case _:
                pass
        return Done()

    def read_activity(self) -> SettlingZone:
        return SettlingZone(
            newest_event_at=self.newest_event,
            marker_at=self.marker,
            rules=SettlingRules.of(self.pipeline),
        )

    def _freeze(self, request: FreezeManifest) -> FreezeStart:
        self.listings += 1
        configuration = Configuration(hash="c" * 16, pipeline=self.pipeline)
        if self.pipeline.dataset.freeze == "copy":
            return FreezeStart(configuration=configuration, part="all")
        return FreezeStart(configuration=configuration, dataset=self.dataset(request.frozen_at))

    def _claim(self, request: ClaimDataset) -> DatasetClaim:
        version, number, last = request.request.dataset.version, 1, None
        while (name := training_name(version, number)) in self.claims:
            last = self.claims[name]
            if last.batch == request.batch:
                return last
            number += 1
        if last is not None:
            first = self.claimed_with[training_name(version, number - 1)]
            known = LastRound(
                run=last.run,
                state=self.run_states.get(last.run),
                configuration=first.configuration,
                parameters=first.parameters,
            )
            why = why_no_further_round(request, known)
            if why is not None:
                return last.model_copy(update={"why_not": why})
        run = request.request.model_copy(update={"round": number}).run
        self.claims[name] = DatasetClaim(run=run, batch=request.batch, round=number)
        self.claimed_with[name] = request.request
        return self.claims[name]

    def dataset(self, frozen_at: datetime) -> Dataset:
        lines = self.lines()
        version = version_of(lines)
        self.contents[version] = {(line.path, line.md5 or "") for line in lines}
        return Dataset(
            version=version,
            blobs=len(self.blobs),
            bytes=len(self.blobs),
            frozen_at=frozen_at,
            newest=max((when for _, _, when in self.blobs.values()), default=None),
            manifest_path=f"manifests/digits/{version}",
        )

    def _compare(self, dataset: Dataset) -> BatchComparison:
        trained = [
            each.dataset for each in self.batches if each.result.outcome in ("started", "duplicate")
        ]
        last = trained[-1] if trained else None
        return BatchComparison(
            last_trained_blobs=None if last is None else last.blobs,
            only_deletions=last is not None
            and self.contents[dataset.version] < self.contents[last.version],
            data_changed_in_a_row=self.data_changed,
            released=False,
        )

    def train(self, context: Any) -> Generator[Any, Any, dict[str, Any]]:
        request = RunInput.from_dict(context.get_input()).request
        version = request.dataset.version
        self.trained.append(version)
        yield context.create_timer(
            context.current_utc_datetime + timedelta(seconds=TRAINING_SECONDS)
        )
        error = self.ends_with.get(version) or self.ends_with.get("*")
        self.run_states[context.instance_id] = STATES[error]
        return run_status(
            context.instance_id,
            STATES[error],
            context.current_utc_datetime,
            error=Failure(type=error, message="", permanent=True)
            if error == "DataRejected"
            else None,
        ).to_dict()

    @property
    def outcomes(self) -> list[str]:
        return [batch.result.outcome for batch in self.batches]

    @property
    def phase(self) -> str:
        status = self.driver.instances[landing_instance("digits")].custom_status
        return LandingStatus.from_dict(status).phase


def land(zone: Zone, *seconds: float, marker: float | None = None) -> None:
    """Write a blob at each second, and the marker if given; run until nothing is scheduled."""
    put_at(zone, *seconds)
    if marker is not None:
        zone.driver.at(marker, zone.put_marker)
    zone.driver.run()


def put_at(zone: Zone, *seconds: float, **how: Any) -> None:
    """Schedule the upload of a blob at each second."""
    for each in seconds:
        zone.driver.at(each, lambda each=each: zone.put(f"{each:07.2f}.png", **how))
