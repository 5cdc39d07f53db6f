"""State of one generation of `rollout`: its progress, its status, its waits."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import datetime, timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.configuration.deploy import BatchDeploy, Deploy, RolloutStep
from orchestrations.contracts.base import ActivityRequest, Result
from orchestrations.contracts.notifications import (
    Notification,
    PublishNotification,
    RolloutNotificationKind,
)
from orchestrations.contracts.outcomes import rule_of_rollout
from orchestrations.contracts.rollouts import (
    AlertRolloutHeld,
    Directions,
    EndpointTraffic,
    MeasureAnswers,
    ObserveRollout,
    ReadDirections,
    RolloutInput,
    RolloutProgress,
    RolloutState,
    RolloutStatus,
    SetTraffic,
    Unknown,
)
from orchestrations.errors import LandfallError
from orchestrations.names import (
    alert_id,
    deployment_name,
    notification_id,
    rollout_id,
    smoke_job,
)
from orchestrations.platform.activities import ReplayLogger, Step, call
from orchestrations.platform.waiting import InterruptibleTimer, growing_delay
from orchestrations.rollout.answer_guards import guards_of, judge_answers
from orchestrations.rollout.decisions import (
    ALERT_AFTER,
    Broken,
    Passed,
    Verdict,
    judge_step,
    kind_of,
    step_to_decide,
    steps_of,
    worst,
)

POLLS_PER_GENERATION = 30


class ContinuesAsNew(Exception):
    """This generation ends; the next one continues from the progress."""


class RolloutGeneration:
    """State of one generation of `rollout`."""

    def __init__(self, context: DurableOrchestrationContext, rollout_input: RolloutInput) -> None:
        self.context = context
        self.request = rollout_input.request
        deploy, model = rollout_input.request.pipeline.deploy, rollout_input.request.model
        assert deploy is not None, "only pipelines with deploy have rollouts"
        self.deploy: Deploy = deploy
        attempt = rollout_input.request.attempt
        self.id = rollout_id(deploy.endpoint, model.version, attempt)
        self.deployment = rollout_input.request.deployment or deployment_name(model.version)
        self.smoke_job = smoke_job(deploy.endpoint, self.deployment, attempt)
        self.log = ReplayLogger(context)
        self.timer = InterruptibleTimer(context)
        self.polls = 0
        now = context.current_utc_datetime
        self.progress = rollout_input.progress or RolloutProgress(state="waiting", since=now)
        self.status = RolloutStatus(
            id=self.id,
            pipeline=rollout_input.request.pipeline.name,
            run=rollout_input.request.run,
            model=model,
            endpoint=deploy.endpoint,
            deployment=self.deployment,
            state=self.progress.state,
            since=self.progress.since,
            step=self.progress.step,
            steps=len(self.steps),
            reason=self.progress.reason,
            at_once=rollout_input.request.at_once,
        )
        self.show()

    @property
    def previous(self) -> EndpointTraffic:
        """The endpoint's traffic before the rollout."""
        return self.progress.previous or EndpointTraffic()

    @property
    def steps(self) -> Sequence[RolloutStep]:
        """All steps of this rollout."""
        return steps_of(self.deploy, self.previous, at_once=self.request.at_once)

    @property
    def outages(self) -> timedelta:
        """The length of all outages in this state, the current one included."""
        since, now = self.progress.unknown_since, self.context.current_utc_datetime
        current = timedelta() if since is None else now - since
        return timedelta(seconds=self.progress.outage_seconds) + current

    @property
    def elapsed(self) -> timedelta:
        """The time in this state, without the outages in it."""
        return self.since(self.progress.since)

    @property
    def is_rollback(self) -> bool:
        """Whether a person rolls the champion back, which waits for no window or approval."""
        change = self.request.champion
        return change is not None and change.verb == "rollback"

    def first_seen(self) -> datetime:
        """When this was first called in this state: see `RolloutProgress.first_seen`."""
        seen = self.progress.first_seen or self.context.current_utc_datetime
        self.note(first_seen=seen)
        return seen

    def since(self, moment: datetime) -> timedelta:
        """The time since a moment of this state, without the outages in the state."""
        return self.context.current_utc_datetime - moment - self.outages

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended, and people were told."""
        return rule_of_rollout(self.progress.state).phase == "over" and self.progress.announced

    def move(self, state: RolloutState, *, announced: bool = False, **changes: Any) -> None:
        """Enter a state."""
        now = self.context.current_utc_datetime
        self.end_outage()
        begins = {"since": now, "outage_seconds": 0.0, "first_seen": None}
        self.note(state=state, announced=announced, **begins, **changes)
        self.log.info("%s: %s %s", self.id, state, self.progress.reason or "")
        shown = {"step": self.progress.step, "reason": self.progress.reason, "approval": None}
        self.show(state=state, since=now, **shown)

    def note(self, **changes: Any) -> None:
        """Change the progress."""
        self.progress = self.progress.model_copy(update=changes)

    def show(self, **changes: Any) -> None:
        """Change the custom status."""
        self.status = self.status.model_copy(update={**changes, "steps": len(self.steps)})
        self.context.set_custom_status(self.status.to_dict())

    def wait(self, delay: timedelta) -> Generator[Any, Any, None]:
        """Wait for a wake-up, for at most `delay`.

        Raises:
            ContinuesAsNew: this generation has reached its limit of waits.
        """
        yield from self.timer.wait(self.context.current_utc_datetime + delay)
        self.polls += 1
        if self.polls >= POLLS_PER_GENERATION or self.timer.restart_needed:
            raise ContinuesAsNew

    def call(self, request: ActivityRequest[Result]) -> Step[Result]:
        """Run an activity; `orchestrations.rollout.decisions` decides about its errors."""
        return (yield from call(self.context, request))

    def call_if_possible(self, request: ActivityRequest[Any]) -> Generator[Any, Any, None]:
        """Run an activity that the rollout can do without.

        Raises:
            LandfallError: an outage; the step must be tried again.
        """
        try:
            yield from self.call(request)
        except LandfallError as error:
            if kind_of(error) == "unknown":
                raise
            self.log.warning("%s: left out %s: %s", self.id, request.activity_name(), error)

    def hold(self, what: str) -> Generator[Any, Any, None]:
        """Wait during an outage. If it lasts for `ALERT_AFTER`, alert operators, once."""
        now = self.context.current_utc_datetime
        since = self.progress.unknown_since or now
        self.log.warning("%s: waits, because it cannot know: %s", self.id, what)
        self.note(unknown_since=since)
        self.show(unknown=Unknown(since=since, what=what))
        if now - since >= ALERT_AFTER and not self.progress.alerted:
            try:
                yield from self.call(self._alert(what, since))
            except LandfallError as error:  # the next try alerts
                self.log.warning("%s: could not alert operators: %s", self.id, error)
            else:
                self.note(alerted=True)
        yield from self.wait(growing_delay(now - since))

    def _alert(self, what: str, since: datetime) -> AlertRolloutHeld:
        return AlertRolloutHeld(
            alert_id=alert_id("rollout-held", self.id, since.isoformat()),
            rollout=self.id,
            pipeline=self.request.pipeline.name,
            endpoint=self.deploy.endpoint,
            state=self.progress.state,
            since=since,
            message=what,
            at=self.context.current_utc_datetime,
            traceparent=self.request.traceparent,
        )

    def end_outage(self) -> None:
        """End the outage, if there is one."""
        if self.progress.unknown_since is not None:
            total = self.outages.total_seconds()
            self.note(unknown_since=None, alerted=False, outage_seconds=total)
            self.show(unknown=None)

    def announce(
        self, kind: RolloutNotificationKind, *, about: str | None = None
    ) -> Generator[Any, Any, None]:
        """Notify people of the state, or of a question; the rollout continues if it is refused."""
        notification = Notification(
            id=notification_id(about or self.id, kind),
            kind=kind,
            at=self.context.current_utc_datetime,
            status=self.status.model_copy(update={"unknown": None}),
            traceparent=self.request.traceparent,
        )
        yield from self.call_if_possible(
            PublishNotification(pipeline=self.request.pipeline, notification=notification)
        )
        self.note(announced=True)

    def set_traffic(self, traffic: EndpointTraffic) -> Generator[Any, Any, None]:
        """Set the endpoint's traffic."""
        request = SetTraffic(endpoint=self.deploy.endpoint, kind=self.deploy.kind, traffic=traffic)
        yield from self.call(request)
        self.show(traffic=traffic.traffic, mirror=traffic.mirror)

    def read_directions(self) -> Step[Directions]:
        """Read what people and newer models ask of the rollout."""
        step = step_to_decide(self.progress.state, self.progress.step)
        request = ReadDirections(rollout=self.id, endpoint=self.deploy.endpoint, step=step)
        return (yield from self.call(request))

    def judge(self, step: RolloutStep) -> Generator[Any, Any, Verdict]:
        """Measure the deployment and its answers since the step began, and judge them."""
        if self.request.at_once:
            return Passed()
        observed = yield from self.call(
            ObserveRollout(
                rollout=self.id,
                endpoint=self.deploy.endpoint,
                kind=self.deploy.kind,
                deployment=self.deployment,
                step=self.progress.step,
                since=self.progress.since,
            ),
        )
        rate = observed.failures / observed.requests if observed.requests else None
        self.show(
            requests=observed.requests, error_rate=rate, latency_p95_ms=observed.latency_p95_ms
        )
        elapsed = self.context.current_utc_datetime - self.progress.since
        verdict = judge_step(self.deploy, step, observed, elapsed=elapsed)
        if isinstance(verdict, Broken):
            return verdict
        return worst(verdict, (yield from self._judge_answers(step)))

    def _judge_answers(self, step: RolloutStep) -> Generator[Any, Any, Verdict]:
        deploy, judged = self.deploy, guards_of(self.deploy, step, self.previous)
        if isinstance(deploy, BatchDeploy) or not judged:
            return Passed()
        request = MeasureAnswers(
            endpoint=deploy.endpoint,
            deployment=self.deployment,
            current=list(self.previous.traffic),
            container=self.request.pipeline.source.container,
            guards=judged,
            since=self.progress.since,
        )
        measured = (yield from self.call(request)).guards
        shown = {
            guard.label: found.value
            for guard, found in zip(judged, measured, strict=True)
            if found.value is not None
        }
        self.show(answers=shown)
        return judge_answers(deploy.guards, judged, measured)
