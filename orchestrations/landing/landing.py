"""The landing of data: from the first event of a batch to the end of its training."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any, Literal

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import Configuration, Dataset
from orchestrations.contracts.holds import rule_of_hold
from orchestrations.contracts.landing import (
    AlertOperators,
    BatchComparison,
    BatchOutcome,
    BatchTrace,
    ClaimDataset,
    CompareBatch,
    CountDataChanged,
    HoldBatch,
    LandingAlert,
    LandingPhase,
    LandingRequest,
    LandingResult,
    LandingStatus,
    ReadZoneActivity,
    RecordBatch,
    SettlingRules,
    SettlingZone,
)
from orchestrations.contracts.runs import RunRequest, RunStatus
from orchestrations.contracts.training import RunInput
from orchestrations.errors import DataRejected, InvalidManifest, InvalidPipeline
from orchestrations.landing.decisions import Hold, decide, first_attempt
from orchestrations.landing.freezing import freeze
from orchestrations.landing.settling import (
    Wait,
    decide_to_list,
    has_more,
    is_marked,
    judge_listing,
    overdue_details,
)
from orchestrations.names import alert_id, batch_id
from orchestrations.platform.activities import Pending, call, wait_for_all
from orchestrations.platform.trace_context import batch_context
from orchestrations.platform.waiting import InterruptibleTimer

RETRAINING = "retraining"
# Eight history events a wake-up: a generation stays under 500 also when data trickles in for days.
WAKE_UPS_PER_GENERATION = 50
# Longer than the delay until triggers see a new custom status, on every durable backend.
CLOSING_TIME = timedelta(seconds=2)
_Settled = Dataset | Literal["overdue"] | InvalidManifest


def landing(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Land one batch after another until no new data arrives.

    1. Wait until the batch may be complete (`settling.decide_to_list`), by the rules that are
       deployed at each wake-up. Triggers keep the newest event's time in a small record, so that
       the cost of a wait does not grow with the zone. The external event `wake_up` (the marker has
       landed) ends a wait early.
    2. List the zone once and write the listing as a manifest; its hash is the dataset version. The
       deployed configuration is resolved first: the listing, the steps below and the run use this
       one. If `dataset.freeze` is `copy`, and a blob is overwritten before it is copied, there is
       no manifest: go back to 1.
    3. Judge the listing (`settling.judge_listing`). If the batch is not complete, or if other rules
       were deployed since 1, go back to 1; the next listing resolves the configuration again.
    4. If the maximum wait is over without a marker, or without a finished freeze, or if the
       uploader's manifest is invalid: alert operators, train nothing, go to 9.
    5. Compare the batch with the last trained batch (`decisions.decide`). Deletions alone are
       ignored. A batch that shrank too much, that breaks a rule of `checks`, or whose data keeps
       changing while jobs train, is held until a person releases it; one that differs too little,
       until more has changed; one of a paused pipeline, until the pipeline is resumed.
    6. Claim the dataset version. The first batch that claims it trains on it. The same content
       starts another run only for a request with a new reason or other code, or after a cancelled
       run, never because it lands again.
    7. Record how the batch ended.
    8. Train: the sub-orchestration `retraining`, whose instance id is the run's id. It first checks
       the data by jobs, if the pipeline has such checks; they may hold the batch. It begins in
       parallel with 7, and continues if the record cannot be written. What lands meanwhile is
       one follow-up batch, so that a zone trains one run at a time. A run that has waited for
       nodes for most of an hour goes on by itself (`finding_capacity`), and the landing continues
       with 9: new data must not wait for nodes. A newer batch then takes that run's place in the
       queue. So does, at once, a run that waits for people (`approving`). If such a run refuses
       files after all, reconciliation opens the follow-up; data that was overwritten has events of
       its own.
    9. Announce phase `closing`, wait for a moment, and read the record of 1 once more; again after
       each `wake_up` during that time. Events that the listing did not see start one follow-up
       (`continue_as_new`), and so does a run whose data was refused or has changed, or a release of
       the held batch. Triggers raise `wake_up` for events only in this phase: events of earlier
       phases are in the record before it is read.

    A caller's own request ends after 8; if it is `settled`, it begins with 2 and skips 3.

    If the pipeline is not deployed any more: alert operators, and end.
    """
    request = LandingRequest.from_dict(context.get_input())
    batch = _Batch(context, request)
    try:
        return (yield from _land(context, request, batch))
    except InvalidPipeline as error:
        yield from batch.alert("pipeline-not-deployed", details={"message": str(error)})
        return batch.result("not-deployed").to_dict()


def _land(
    context: DurableOrchestrationContext, request: LandingRequest, batch: _Batch
) -> Generator[Any, Any, dict[str, Any] | None]:
    batch.announce("settling")
    settled = yield from batch.settle()
    if settled is None:
        context.continue_as_new(batch.request.to_dict())
        return None
    if settled == "overdue":
        yield from batch.alert_overdue()
        result, retry = batch.result("overdue"), False
    elif isinstance(settled, InvalidManifest):
        error = str(settled)  # each error in an uploader's manifest has one alert
        yield from batch.alert("manifest-invalid", error, details={"message": error})
        result, retry = batch.result("invalid-manifest"), False
    else:
        result = yield from batch.compare_and_claim(settled)
        retry = yield from batch.conclude(settled, result)
    if request.opened_by == "request":
        return result.to_dict()
    more = yield from batch.close(settled)
    if more or retry:
        follow_up = LandingRequest(
            pipeline=request.pipeline,
            partition=request.partition,
            opened_by="release" if batch.is_released else request.opened_by,
            trace=None if batch.traceparent is None else BatchTrace(follows=batch.traceparent),
        )
        context.continue_as_new(follow_up.to_dict())
        return None
    return result.to_dict()


class _Batch:
    """The state of one batch; the methods are the steps of `landing`."""

    def __init__(self, context: DurableOrchestrationContext, request: LandingRequest) -> None:
        self.context = context
        self.opened_at = request.opened_at or context.current_utc_datetime
        self.request = request.model_copy(update={"opened_at": self.opened_at})
        self.pipeline = request.pipeline
        self.id = batch_id(context.instance_id, self.opened_at)
        span = batch_context(self.id, request.trace)
        self.traceparent = None if span is None else span.header
        self.timer = InterruptibleTimer(context)
        self.activity: SettlingZone | None = None
        """As last read; None for a request that is settled."""
        self.configuration: Configuration | None = None
        """Of the last freeze."""
        self.is_released = False
        """Whether a person has released the held batch since."""
        self.overtaken = False
        self.data_changed_in_a_row = 0
        self.base: str | None = None
        """The last trained version, if a check may end this batch's run."""
        self.first_attempt: RunRequest | None = None

    def announce(self, phase: LandingPhase, run: str | None = None) -> None:
        """Set the custom status."""
        status = LandingStatus(
            phase=phase,
            pipeline=self.pipeline,
            partition=self.request.partition,
            opened_at=self.opened_at,
            run=run,
            traceparent=self.traceparent,
        )
        self.context.set_custom_status(status.to_dict())

    def result(
        self,
        outcome: BatchOutcome,
        *,
        dataset: Dataset | None = None,
        run: str | None = None,
        reason: str | None = None,
    ) -> LandingResult:
        """The result of this batch."""
        version = None if dataset is None else dataset.version
        return LandingResult(
            pipeline=self.pipeline, outcome=outcome, run=run, dataset_version=version, reason=reason
        )

    def settle(self) -> Generator[Any, Any, _Settled | None]:
        """Steps 1 to 3: the batch, or why there is none; None if the generation is full."""
        for _ in range(WAKE_UPS_PER_GENERATION):
            decision: Literal["list", "empty", "whole", "overdue"] | Wait = "list"
            self.overtaken = False
            if not self.request.settled:
                asked_at = self.context.current_utc_datetime
                activity = self.activity = yield from self.read_activity()
                decision = decide_to_list(
                    activity, activity.rules, opened_at=self.opened_at, now=asked_at
                )
            if decision == "list":
                partition = self.request.partition
                try:
                    frozen = yield from freeze(self.context, self.pipeline, partition)
                except InvalidManifest as error:
                    return error
                dataset, self.configuration = frozen
                self.overtaken = dataset is None
                decision = judge_listing(
                    dataset,
                    SettlingRules.of(self.configuration.pipeline),
                    self.activity,
                    opened_at=self.opened_at,
                    now=self.context.current_utc_datetime,
                )
                if decision in ("whole", "empty"):
                    assert dataset is not None, "what was not frozen cannot be whole"
                    return dataset
            if not isinstance(decision, Wait):
                return "overdue"
            yield from self.timer.wait(decision.until)
            if self.timer.restart_needed:
                break
        return None

    def read_activity(self) -> Generator[Any, Any, SettlingZone]:
        """Read the times of the newest event and of the marker, and the deployed rules."""
        request = ReadZoneActivity(pipeline=self.pipeline, partition=self.request.partition)
        return (yield from call(self.context, request))

    def alert_overdue(self) -> Generator[Any, Any, None]:
        """Step 4. All openings since the last batch share one alert id, so they send one alert."""
        activity, configuration = self.activity, self.configuration
        if self.overtaken or activity is None:
            assert configuration is not None, "what was not listed cannot be overtaken"
            rules = SettlingRules.of(configuration.pipeline)
        else:
            rules = activity.rules
        cause = "overwritten-while-copied" if self.overtaken else "no-marker"
        since = None if activity is None else activity.marker_at
        yield from self.alert(
            "landing-overdue",
            cause,
            "first" if since is None else since.isoformat(),
            details=overdue_details(activity, rules, cause, opened_at=self.opened_at),
        )

    def alert(
        self, kind: LandingAlert, *name: str, details: dict[str, Any]
    ) -> Generator[Any, Any, None]:
        """Alert operators; `name` distinguishes this alert from others of its kind and zone."""
        yield from call(
            self.context,
            AlertOperators(
                kind=kind,
                alert_id=alert_id(kind, self.context.instance_id, *name),
                pipeline=self.pipeline,
                at=self.context.current_utc_datetime,
                details={"landing": self.context.instance_id, **details},
                traceparent=self.traceparent,
            ),
        )

    def compare_and_claim(self, dataset: Dataset) -> Generator[Any, Any, LandingResult]:
        """Steps 5 and 6: compare, then claim."""
        if dataset.blobs == 0:
            return self.result("empty")
        assert self.configuration is not None, "a dataset is frozen by a configuration"
        rules = self.configuration.hash if self.configuration.pipeline.has_rules_for_data else None
        comparison = yield from call(
            self.context,
            CompareBatch(pipeline=self.pipeline, configuration=rules, dataset=dataset),
        )
        self.data_changed_in_a_row = comparison.data_changed_in_a_row
        self.base = comparison.base
        pipeline = self.configuration.pipeline
        decision = decide(dataset, comparison, pipeline, has_reason=self.request.has_reason)
        if decision == "ignore":
            return self.result("only-deletions", dataset=dataset)
        if isinstance(decision, Hold):
            yield from self.hold(dataset, decision, comparison)
            return self.result("held", dataset=dataset)
        return (yield from self.claim(dataset, self.configuration, comparison))

    def conclude(self, dataset: Dataset, result: LandingResult) -> Generator[Any, Any, bool]:
        """Steps 7 and 8; True if a follow-up batch is needed, see `train`."""
        recorded = Pending(
            self.context,
            RecordBatch(
                batch=self.id,
                opened_at=self.opened_at,
                opened_by=self.request.opened_by,
                dataset=dataset,
                marker_at=self.marker_of(dataset),
                result=result,
                trace=self.request.trace,
                concluded_at=self.context.current_utc_datetime if self.traceparent else None,
                base=self.base,
            ),
        )
        if self.first_attempt is not None:
            return (yield from self.train(dataset, recorded, self.first_attempt))
        yield from recorded.result()
        return False

    def hold(
        self, dataset: Dataset, decision: Hold, comparison: BatchComparison
    ) -> Generator[Any, Any, None]:
        """Hold the batch for a person; alert operators, if its reason says so."""
        reason, message = decision.reason, decision.message
        hold = HoldBatch(
            pipeline=self.pipeline, batch=self.id, dataset=dataset, reason=reason, message=message
        )
        yield from call(self.context, hold)
        if rule_of_hold(reason).alerts:
            details = {
                "dataset_version": dataset.version,
                "reason": reason,
                "message": message,
                "blobs": dataset.blobs + dataset.quarantined,
                "last_trained_blobs": comparison.last_trained_blobs,
                **({"difference": comparison.difference} if comparison.difference else {}),
            }
            yield from self.alert("batch-held", reason, details=details)

    def claim(
        self, dataset: Dataset, configuration: Configuration, comparison: BatchComparison
    ) -> Generator[Any, Any, LandingResult]:
        """Step 6, with the configuration in force at the freeze."""
        request = first_attempt(
            self.request, dataset, configuration, comparison, traceparent=self.traceparent
        )
        claim = yield from call(
            self.context,
            ClaimDataset(
                request=request,
                batch=self.id,
                opened_by=self.request.opened_by,
                released=comparison.released and len(configuration.pipeline.jobs) > 1,
            ),
        )
        if claim.batch != self.id:
            return self.result("duplicate", dataset=dataset, run=claim.run, reason=claim.why_not)
        self.first_attempt = request.model_copy(update={"round": claim.round})
        return self.result("started", dataset=dataset, run=claim.run)

    def train(
        self, dataset: Dataset, recorded: Pending[Done], request: RunRequest
    ) -> Generator[Any, Any, bool]:
        """Step 8, in parallel with 7; True if the run's data was refused or has changed."""
        self.announce("training", run=request.run)
        document = RunInput(request=request).to_dict()
        training = self.context.call_sub_orchestrator(RETRAINING, document, request.run)
        yield from wait_for_all(self.context, recorded, training)
        yield from recorded.result()
        try:
            output = yield training
        except Exception:  # noqa: BLE001 - the SDK raises a bare Exception
            # The run was terminated or failed: reconciliation closes it. The landing continues.
            return False
        if output is None:  # it waits for nodes or people, and goes on by itself
            return False
        status = RunStatus.from_dict(output)
        # No newer run can supersede a first attempt: only a change of its data does.
        data_changed = status.state == "superseded"
        data_rejected = status.error is not None and status.error.type == DataRejected.__name__
        if data_changed or self.data_changed_in_a_row:
            count = self.data_changed_in_a_row + 1 if data_changed else 0
            changed = CountDataChanged(pipeline=self.pipeline, dataset=dataset, in_a_row=count)
            yield from call(self.context, changed)
        return data_changed or data_rejected

    def close(self, settled: _Settled) -> Generator[Any, Any, bool]:
        """Step 9: whether more data has landed, or the batch was released."""
        self.announce("closing")
        while True:
            woken = yield from self.timer.wait(self.context.current_utc_datetime + CLOSING_TIME)
            activity = yield from self.read_activity()
            if self.more_landed(activity, settled):
                return True
            # A wake-up during the read may be for an event that the record did not have yet.
            woken = woken or self.timer.take_late_wake_up()
            if not woken or self.timer.restart_needed:
                return False

    def more_landed(self, activity: SettlingZone, settled: _Settled) -> bool:
        """Whether the record has events, or a release, that this batch did not see."""
        if not isinstance(settled, Dataset):
            return activity != self.activity
        self.is_released = activity.is_released
        marker_at, listed_from = self.marker_of(settled), settled.frozen_at
        return self.is_released or has_more(activity, listed_from=listed_from, marker_at=marker_at)

    def marker_of(self, dataset: Dataset) -> datetime | None:
        """When the marker that completes the batch was written; None if there is none."""
        marker_at = None if self.activity is None else self.activity.marker_at
        return marker_at if is_marked(dataset, marker_at) else None
