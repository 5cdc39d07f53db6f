from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.triggers.blob_created import ensure_landing
from orchestrations.activities import FAILURE_KEY, RESULT_KEY
from orchestrations.contracts.base import Done, Failure
from orchestrations.contracts.configurations import Configuration
from orchestrations.contracts.datasets import (
    CommitManifest,
    CommitStep,
    Dataset,
    FreezeManifest,
    FreezeStart,
    Piece,
)
from orchestrations.contracts.landing import (
    AlertOperators,
    BatchComparison,
    ClaimDataset,
    CompareBatch,
    CountDataChanged,
    DatasetClaim,
    HoldBatch,
    LandingRequest,
    LandingResult,
    LandingStatus,
    RecordBatch,
    ZoneActivity,
)
from orchestrations.contracts.retraining import RunInput
from orchestrations.contracts.runs import RunState
from orchestrations.errors import DataChanged, InvalidManifest, InvalidPipeline, LandfallError
from orchestrations.freezing import freezing
from orchestrations.landing import WAKE_UPS_PER_GENERATION, landing
from orchestrations.manifest import ManifestLine
from orchestrations.names import landing_instance
from orchestrations.pipeline import Pipeline
from orchestrations.retrying import describe
from orchestrations.settling import has_more, was_listed
from tests.unit.orchestrations.driver import START, Driver, finish
from tests.unit.orchestrations.examples import PIPELINE, run_status, version_of, with_rules

TRAINING_SECONDS = 30.0
# How `retraining` ends when its job left such an error.
STATES: dict[str | None, RunState] = {
    None: "succeeded",
    "DataChanged": "superseded",
    "DataRejected": "rejected",
}
# An activity is dispatched, returns, and its result is taken up: three steps of a second each.
ACTIVITY = timedelta(seconds=3)
UNMARKED = with_rules(PIPELINE, source={"marker": None})


@dataclass
class Zone:
    """A landing zone, its records, and a trainer that takes half a minute."""

    seed: int = 0
    pipeline: Pipeline = UNMARKED
    blobs: dict[str, tuple[str, str, datetime]] = field(default_factory=dict)
    marker: datetime | None = None
    newest_event: datetime | None = None
    claims: dict[str, DatasetClaim] = field(default_factory=dict)
    batches: list[RecordBatch] = field(default_factory=list)
    data_changed: int = 0
    released: set[str] = field(default_factory=set)
    paused: str | None = None
    held: list[HoldBatch] = field(default_factory=list)
    alerts: list[AlertOperators] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list[str | None])
    configurations: list[str | None] = field(default_factory=list)
    ends_with: dict[str, str] = field(default_factory=dict)
    """Dataset version → type of the error that its run ends with."""
    listings: int = 0
    overtaken: int = 0
    """So many freezes are overtaken, where blobs are copied."""
    is_deployed: bool = True
    records_are_out: bool = False
    is_invalid: bool = False
    """The uploader's manifest breaks its rules."""
    contents: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    retraining: Callable[[Any], Any] | None = None
    """In the place of a training that takes its time."""

    def __post_init__(self) -> None:
        latency = random.Random(self.seed)
        self.driver = Driver(
            activities={
                "read_zone_activity": self.read_activity,
                "freeze_manifest": self.freeze,
                "copy_blobs": self.copy,
                "commit_manifest": self.commit,
                "discard_parts": lambda _: _result(Done()),
                "compare_batch": self.compare,
                "hold_batch": self.hold,
                "alert_operators": self.alert,
                "resolve_configuration": self.resolve,
                "claim_dataset": self.claim,
                "record_batch": self.record,
                "count_data_changed": self.count_data_changed,
            },
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
        finish(ensure_landing(starter, self.pipeline, opened_by="event", wake=wake))

    def reconcile(self) -> bool:
        """Reconcile a zone whose events were lost; return whether there was one."""
        activity = ZoneActivity(newest_event_at=self.newest_event, marker_at=self.marker)
        last = self.batches[-1]
        is_due = has_more(activity, listed_from=last.dataset.frozen_at, marker_at=last.marker_at)
        if is_due:
            self.open_landing()
        return is_due

    def lines(self) -> list[ManifestLine]:
        return [
            ManifestLine(path=path, size=1, md5=content, etag=etag)
            for path, (etag, content, _) in sorted(self.blobs.items())
        ]

    def read_activity(self, given: Any) -> Any:  # noqa: ARG002 - an activity takes its input
        return _result(ZoneActivity(newest_event_at=self.newest_event, marker_at=self.marker))

    def freeze(self, given: Any) -> Any:
        self.listings += 1
        request = FreezeManifest.from_dict(given)
        if self.is_invalid:
            return _failure(InvalidManifest("landing/digits/_SUCCESS, line 3: no size"))
        if request.pipeline.dataset.freeze == "copy":
            return _result(FreezeStart(part="all"))
        return _result(FreezeStart(dataset=self.dataset(request.frozen_at)))

    def copy(self, _: Any) -> Any:
        self.overtaken -= 1
        if self.overtaken >= 0:
            return _failure(DataChanged("1 of 1 blobs was written"))
        return _result(Piece(marker=None))

    def commit(self, given: Any) -> Any:
        dataset = self.dataset(CommitManifest.from_dict(given).frozen_at)
        return _result(CommitStep(dataset=dataset))

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

    def compare(self, given: Any) -> Any:
        dataset = CompareBatch.from_dict(given).dataset
        trained = [
            each.dataset for each in self.batches if each.result.outcome in ("started", "duplicate")
        ]
        last = trained[-1] if trained else None
        return _result(
            BatchComparison(
                last_trained_blobs=None if last is None else last.blobs,
                only_deletions=last is not None
                and self.contents[dataset.version] < self.contents[last.version],
                data_changed_in_a_row=self.data_changed,
                released=dataset.version in self.released,
                paused=self.paused,
            )
        )

    def hold(self, given: Any) -> Any:
        self.held.append(HoldBatch.from_dict(given))
        return _result(Done())

    def alert(self, given: Any) -> Any:
        self.alerts.append(AlertOperators.from_dict(given))
        return _result(Done())

    def resolve(self, _: Any) -> Any:
        if not self.is_deployed:
            return _failure(InvalidPipeline("pipelines/digits/pipeline.yml: cannot be read"))
        return _result(Configuration(hash="c" * 16, pipeline=self.pipeline))

    def claim(self, given: Any) -> Any:
        request = ClaimDataset.from_dict(given)
        ours = DatasetClaim(run=request.run, batch=request.batch)
        return _result(self.claims.setdefault(request.request.dataset.version, ours))

    def record(self, given: Any) -> Any:
        if self.records_are_out:
            raise ConnectionError("no answer")
        self.batches.append(RecordBatch.from_dict(given))
        return _result(Done())

    def count_data_changed(self, given: Any) -> Any:
        self.data_changed = CountDataChanged.from_dict(given).in_a_row
        return _result(Done())

    def train(self, context: Any) -> Generator[Any, Any, dict[str, Any]]:
        request = RunInput.from_dict(context.get_input()).request
        version = request.dataset.version
        self.trained.append(version)
        self.configurations.append(request.configuration)
        self.reasons.append(request.reason)
        yield context.create_timer(
            context.current_utc_datetime + timedelta(seconds=TRAINING_SECONDS)
        )
        error = self.ends_with.get(version) or self.ends_with.get("*")
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


def _result(contract: Any) -> dict[str, Any]:
    return {RESULT_KEY: contract.to_dict()}


def _failure(error: LandfallError) -> dict[str, Any]:
    return {FAILURE_KEY: describe(error).to_dict()}


def at(zone: Zone, seconds: float, action: Any) -> None:
    zone.driver.at(START + timedelta(seconds=seconds), action)


def put_at(zone: Zone, *seconds: float, **how: Any) -> None:
    """One more blob at each of those seconds."""
    for each in seconds:
        at(zone, each, lambda each=each: zone.put(f"{each:07.2f}.png", **how))


def test_a_burst_of_events_is_one_run_after_the_quiet_time_and_one_listing() -> None:
    zone = Zone()
    put_at(zone, *(number * 0.5 for number in range(20)), *range(12, 60, 3))
    zone.driver.run()
    assert len(zone.trained) == 1
    (batch,) = zone.batches
    assert batch.dataset.blobs == 36
    assert batch.dataset.frozen_at >= START + timedelta(seconds=57 + 10)
    assert zone.listings == 1
    assert zone.configurations == ["c" * 16], "the one that is in force at the freeze"


@pytest.mark.parametrize("late", [10.5 + 1.5 * number for number in range(12)])
def test_the_listing_that_was_judged_is_the_one_that_is_frozen(late: float) -> None:
    """A blob that lands between the two listings of old was trained on unsettled."""
    zone = Zone()
    zone.driver.latency = lambda: 2.0
    put_at(zone, 0.0, late)
    zone.driver.run()
    assert [batch.dataset.blobs for batch in zone.batches] in ([1, 2], [2])
    for batch in zone.batches:
        assert batch.dataset.newest is not None
        assert batch.dataset.frozen_at - batch.dataset.newest >= timedelta(seconds=10)


def test_events_that_are_lost_do_not_make_an_upload_seem_to_rest() -> None:
    zone = Zone()
    put_at(zone, 0.0)
    put_at(zone, *range(3, 30, 3), event_after=None)
    zone.driver.run()
    assert [batch.dataset.blobs for batch in zone.batches] == [10]


def test_data_that_never_rests_is_frozen_at_the_maximum_wait() -> None:
    zone = Zone()
    put_at(zone, *(number * 5.0 for number in range(60)))
    zone.driver.run()
    first = zone.batches[0].dataset.frozen_at
    assert first - zone.batches[0].opened_at < timedelta(seconds=105)


# --- copies ---------------------------------------------------------------------------------------


def copied(zone_is_overtaken: int) -> Zone:
    return Zone(
        pipeline=with_rules(UNMARKED, dataset={"freeze": "copy"}), overtaken=zone_is_overtaken
    )


def test_a_freeze_that_is_overtaken_is_made_again_after_the_quiet_time() -> None:
    zone = copied(2)
    put_at(zone, 0.0)
    zone.driver.run()
    assert (zone.listings, len(zone.trained), zone.alerts) == (3, 1, [])
    assert zone.batches[0].dataset.frozen_at >= START + timedelta(seconds=30)


def test_a_zone_that_overtakes_each_freeze_is_reported_and_not_copied_for_ever() -> None:
    zone = copied(1_000_000)
    put_at(zone, 0.0)
    zone.driver.run()
    assert (zone.trained, zone.batches) == ([], [])
    (alert,) = zone.alerts
    assert (alert.kind, alert.details["cause"]) == ("landing-overdue", "overwritten-while-copied")
    assert zone.listings < 15


# --- an uploader's manifest -----------------------------------------------------------------------


def test_an_invalid_manifest_is_reported_once_and_the_next_one_is_trained_on() -> None:
    zone = Zone(
        pipeline=with_rules(PIPELINE, source={"marker": None, "manifest": "manifest.jsonl"}),
        is_invalid=True,
    )
    put_at(zone, 0.0)
    at(zone, 1.0, zone.put_marker)
    at(zone, 60.0, zone.open_landing)  # as reconciliation does
    zone.driver.run()
    assert (zone.trained, zone.batches) == ([], [])
    assert len({alert.alert_id for alert in zone.alerts}) == 1
    assert zone.alerts[0].details["message"] == "landing/digits/_SUCCESS, line 3: no size"
    zone.is_invalid = False
    zone.put_marker()
    zone.driver.run()
    assert len(zone.trained) == 1


# --- markers --------------------------------------------------------------------------------------


def marked(**settle: Any) -> Zone:
    return Zone(pipeline=with_rules(PIPELINE, settle=settle))


def test_a_marker_ends_the_wait() -> None:
    zone = marked()
    put_at(zone, 0.0)
    at(zone, 2.0, zone.put_marker)
    zone.driver.run()
    assert zone.batches[0].dataset.frozen_at < START + timedelta(seconds=5)
    assert (len(zone.trained), zone.listings) == (1, 1)


def test_an_upload_that_pauses_is_not_whole_without_its_marker() -> None:
    """It pauses for longer than the quiet time: half a batch was trained on."""
    zone = marked()
    put_at(zone, 0.0, 1.0, 40.0, 41.0)
    at(zone, 42.0, zone.put_marker)
    zone.driver.run()
    assert [batch.dataset.blobs for batch in zone.batches] == [4]
    assert zone.alerts == []


def test_without_its_marker_a_batch_is_overdue_and_not_trained_on() -> None:
    zone = marked()
    put_at(zone, 0.0, 1.0)
    zone.driver.run()
    assert (zone.trained, zone.batches, zone.listings) == ([], [], 0)
    (alert,) = zone.alerts
    assert alert.kind == "landing-overdue"
    assert alert.details["marker"] == "_SUCCESS"
    assert not zone.driver.instances[landing_instance("digits")].live


def test_operators_are_alerted_once_about_one_batch() -> None:
    zone = marked()
    put_at(zone, *range(0, 1000, 20))
    at(zone, 1000.0, zone.put_marker)
    zone.driver.run()
    assert len({alert.alert_id for alert in zone.alerts}) == 1
    assert [batch.dataset.blobs for batch in zone.batches] == [50]


def test_a_marker_that_comes_late_still_makes_its_batch_whole() -> None:
    zone = marked()
    put_at(zone, 0.0)
    at(zone, 500.0, zone.put_marker)
    zone.driver.run()
    assert (len(zone.alerts), zone.outcomes) == (1, ["started"])


def test_a_marker_whose_event_is_lost_is_found_at_the_maximum_wait() -> None:
    zone = marked()
    put_at(zone, 0.0)
    at(zone, 5.0, lambda: zone.put_marker(with_event=False))
    zone.driver.run()
    assert (zone.alerts, zone.outcomes) == ([], ["started"])


def test_the_marker_of_the_last_batch_says_nothing_of_the_next() -> None:
    zone = marked()
    put_at(zone, 0.0)
    at(zone, 1.0, zone.put_marker)
    put_at(zone, 100.0)
    zone.driver.run()
    assert zone.outcomes == ["started"]
    assert [alert.kind for alert in zone.alerts] == ["landing-overdue"]


def test_a_pipeline_may_train_without_its_marker() -> None:
    zone = marked(without_marker="train")
    put_at(zone, 0.0, 1.0)
    zone.driver.run()
    assert (zone.alerts, zone.outcomes) == ([], ["started"])
    assert zone.batches[0].dataset.frozen_at >= START + timedelta(seconds=100)


# --- what is trained on ---------------------------------------------------------------------------


def test_what_lands_during_training_is_one_follow_up_run() -> None:
    zone = Zone()
    put_at(zone, 0.0, *(17.0 + number for number in range(8)))
    zone.driver.run()
    assert [batch.dataset.blobs for batch in zone.batches] == [1, 9]
    assert len(zone.trained) == 2


def test_the_same_content_again_starts_nothing_and_names_the_run() -> None:
    zone = Zone()
    at(zone, 0.0, lambda: zone.put("1.png", "x"))
    at(zone, 500.0, lambda: zone.put("1.png", "x"))
    zone.driver.run()
    assert len(zone.trained) == 1
    first, again = [batch.result for batch in zone.batches]
    assert (first.outcome, again.outcome) == ("started", "duplicate")
    assert again.run == first.run


def deletions(zone: Zone, count: int) -> None:
    put_at(zone, *range(15))
    for number in range(count):
        # Found by a listing: there is no event that opens a landing.
        at(zone, 100.0 + 60 * number, lambda number=number: zone.delete(f"{number:07.2f}.png"))
        at(zone, 110.0 + 60 * number, zone.open_landing)
    zone.driver.run()


def test_deletions_alone_start_nothing() -> None:
    zone = Zone()
    deletions(zone, 12)
    assert len(zone.trained) == 1
    assert zone.outcomes == ["started"] + ["only-deletions"] * 12


def test_a_pipeline_may_train_on_deletions() -> None:
    zone = Zone(
        pipeline=with_rules(
            UNMARKED, source={"deletions": "retrain"}, dataset={"maximum_shrink": 1.0}
        )
    )
    deletions(zone, 3)
    assert len(zone.trained) == 4


def test_a_batch_that_shrank_is_held_with_both_numbers_until_it_is_released() -> None:
    zone = Zone()
    put_at(zone, *range(15))
    for number in range(4):
        at(zone, 100.0, lambda number=number: zone.delete(f"{number:07.2f}.png"))
    put_at(zone, 101.0)
    zone.driver.run()
    assert zone.outcomes == ["started", "held"]
    (alert,) = zone.alerts
    assert (alert.kind, alert.details["blobs"], alert.details["last_trained_blobs"]) == (
        "batch-held",
        12,
        15,
    )
    (held,) = zone.held
    zone.released.add(held.dataset.version)
    zone.open_landing()
    zone.driver.run()
    assert zone.outcomes == ["started", "held", "started"]
    assert len(zone.trained) == 2


def test_a_paused_pipelines_batches_are_held_without_an_alert_until_it_is_resumed() -> None:
    zone = Zone(paused="paused by ada")
    put_at(zone, 0.0, 200.0)
    zone.driver.run()
    assert (zone.outcomes, zone.alerts, zone.trained) == (["held", "held"], [], [])
    assert {(each.reason, each.message) for each in zone.held} == {
        ("paused", "the pipeline is paused by ada")
    }
    zone.paused = None
    zone.open_landing()
    zone.driver.run()
    assert zone.outcomes == ["held", "held", "started"]


def test_data_that_keeps_changing_under_its_jobs_is_not_trained_on_for_ever() -> None:
    zone = Zone(ends_with={"*": "DataChanged"})
    for number in range(40):
        at(zone, number * 25.0, lambda number=number: zone.put("1.png", f"{number}"))
    zone.driver.run()
    assert len(zone.trained) == 2
    assert set(zone.outcomes[2:]) == {"held"}
    assert {alert.details["reason"] for alert in zone.alerts} == {"data-changed"}


def test_a_run_that_ends_well_begins_the_count_anew() -> None:
    zone = Zone()
    zone.ends_with = {"*": "DataChanged"}
    at(zone, 0.0, lambda: zone.put("1.png", "a"))
    at(zone, 60.0, zone.ends_with.clear)
    at(zone, 100.0, lambda: zone.put("1.png", "b"))
    zone.driver.run()
    assert (zone.outcomes[0], zone.outcomes[-1], zone.data_changed) == ("started", "started", 0)


def test_a_run_whose_data_was_refused_is_followed_by_what_is_left() -> None:
    zone = Zone()
    put_at(zone, 0.0, 1.0)

    def quarantine() -> None:
        zone.delete("0000.00.png")
        zone.contents.clear()
        zone.contents[zone.trained[0]] = set()  # what is refused is no deletion

    at(zone, 30.0, lambda: zone.ends_with.update({"*": "DataRejected"}))
    at(zone, 31.0, quarantine)
    at(zone, 50.0, zone.ends_with.clear)
    zone.driver.run()
    assert len(zone.batches) == 2


# --- how a landing ends ---------------------------------------------------------------------------


def test_an_event_in_the_closing_phase_is_not_lost() -> None:
    zone = Zone()
    put_at(zone, 0.0)

    def land_while_closing() -> None:
        if zone.phase == "closing":
            zone.put("2.png")
        else:
            zone.driver.after(0.7, land_while_closing)

    at(zone, 1.0, land_while_closing)
    zone.driver.run()
    assert [batch.dataset.blobs for batch in zone.batches] == [1, 2]


class ReadWhileEventsCome(Zone):
    """More lands after the record was read a last time, before the landing has the answer."""

    def read_activity(self, given: Any) -> Any:
        answer = super().read_activity(given)
        if self.phase == "closing" and len(self.blobs) == 1:
            self.driver.after(0.1, lambda: self.put("2.png"))
        return answer


def test_an_event_that_comes_while_the_record_is_read_a_last_time_is_not_lost() -> None:
    zone = ReadWhileEventsCome()
    zone.driver.latency = lambda: 0.5
    put_at(zone, 0.0)
    zone.driver.run()
    assert [batch.dataset.blobs for batch in zone.batches] == [1, 2]


def test_late_events_reopen_nothing() -> None:
    """99 copies of an event, a minute apart, after the batch was trained on."""
    zone = Zone()
    put_at(zone, 0.0, 1.0)
    for number in range(99):
        late = 120.0 + number * 60.0
        at(zone, late, lambda: zone.event(START + timedelta(seconds=1)))
    zone.driver.run()
    assert (zone.outcomes, zone.listings) == (["started"], 1)
    instance = zone.driver.instances[landing_instance("digits")]
    assert instance.generations == 1


def test_a_requested_landing_freezes_at_once_and_looks_for_nothing_more() -> None:
    zone = Zone()
    zone.put("1.png", "x", event_after=None)
    request = LandingRequest(
        pipeline=zone.pipeline, opened_by="request", settled=True, reason="digits_drift"
    )
    instance = zone.driver.start("landing", "request-digits-1", request.to_dict())
    zone.driver.run()
    assert LandingResult.from_dict(instance.output).outcome == "started"
    assert zone.listings == 1
    assert len(zone.trained) == 1
    assert zone.reasons == ["digits_drift"]


def test_an_empty_zone_ends_without_a_claim() -> None:
    zone = Zone()
    at(zone, 0.0, zone.open_landing)
    zone.driver.run()
    assert zone.outcomes == ["empty"]
    assert not zone.claims


def test_a_broken_run_does_not_stop_the_zone() -> None:
    def broken(_context: Any) -> Generator[Any, Any, Any]:
        raise RuntimeError("terminated")
        yield

    zone = Zone(retraining=broken)
    put_at(zone, 0.0)
    zone.driver.run()
    assert not zone.driver.instances[landing_instance("digits")].live
    assert zone.driver.instances[landing_instance("digits")].error is None


def test_three_activities_lie_between_the_settled_zone_and_its_run() -> None:
    """Freeze; compare beside resolve; claim. The batch is recorded beside its run."""
    started: list[datetime] = []

    def run(context: Any) -> Generator[Any, Any, None]:
        started.append(context.current_utc_datetime)
        yield context.create_timer(context.current_utc_datetime)

    zone = Zone(retraining=run)
    zone.driver.latency = lambda: 1.0
    put_at(zone, 0.0)
    zone.driver.run()
    (batch,) = zone.batches
    assert started[0] - batch.dataset.frozen_at == 3 * ACTIVITY + timedelta(seconds=1)


@pytest.mark.parametrize("rule", ["paused", "only-deletions"])
def test_a_pipeline_that_is_not_deployed_any_more_can_hold_and_ignore_batches(rule: str) -> None:
    zone = Zone()
    put_at(zone, 0.0, 1.0)
    zone.driver.run()
    zone.is_deployed = False
    at(zone, 100.0, lambda: zone.delete("0000.00.png"))
    if rule == "paused":
        zone.paused = "paused by ada: the labels are wrong"
        at(zone, 100.0, lambda: zone.put("new.png"))
    at(zone, 101.0, zone.open_landing)
    zone.driver.run()
    assert zone.outcomes == ["started", "held" if rule == "paused" else rule]
    assert zone.driver.instances[landing_instance("digits")].error is None


def test_a_run_goes_on_whose_batch_cannot_be_recorded() -> None:
    """Reconciliation opens the zone again, and finds the claim."""
    zone = Zone()
    put_at(zone, 0.0)
    zone.records_are_out = True
    zone.driver.run()
    landing_of = zone.driver.instances[landing_instance("digits")]
    assert "no answer" in (landing_of.error or "")
    assert zone.trained
    zone.records_are_out = False
    zone.open_landing()
    zone.driver.run()
    assert zone.outcomes == ["duplicate"]
    assert len(zone.trained) == 1


def test_a_long_trickle_goes_on_in_new_generations_and_keeps_its_deadline() -> None:
    zone = Zone(pipeline=with_rules(UNMARKED, settle={"maximum_wait_seconds": 1200.0}))
    put_at(zone, *(number * 5.0 for number in range(300)))
    zone.driver.run()
    instance = zone.driver.instances["landing-digits"]
    assert instance.generations > 1200 / 10 / WAKE_UPS_PER_GENERATION
    assert timedelta(seconds=1200) <= zone.batches[0].dataset.frozen_at - START
    assert zone.batches[0].dataset.frozen_at - START < timedelta(seconds=1260)


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


@settings(max_examples=25, deadline=None)
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
            written_at = zone.driver.now
            for copy in range(1, copies):
                zone.driver.after(late * copy, lambda: zone.event(written_at))

        at(zone, when, write)
    zone.driver.run()
    while zone.reconcile():
        zone.driver.run()
    assert len(zone.trained) == len(set(zone.trained))
    assert version_of(zone.lines()) in zone.trained
    assert all(not instance.live for instance in zone.driver.instances.values())
    assert all(instance.error is None for instance in zone.driver.instances.values())
