"""State of one generation of `rollout`: its progress, its status, its waits."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from datetime import timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.activities import Step, call
from orchestrations.answer_guards import guards_of, judge_answers
from orchestrations.contracts.notifications import (
    Notification,
    PublishNotification,
    RolloutNotificationKind,
)
from orchestrations.contracts.rollouts import (
    EndpointTraffic,
    MeasureAnswers,
    Observation,
    ObserveRollout,
    RolloutInput,
    RolloutProgress,
    RolloutState,
    RolloutStatus,
    SetTraffic,
)
from orchestrations.deploy import BatchDeploy, Deploy, RolloutStep
from orchestrations.errors import LandfallError
from orchestrations.interruptible_timer import InterruptibleTimer
from orchestrations.names import deployment_name, notification_id, rollout_id
from orchestrations.replay_logger import ReplayLogger
from orchestrations.rollout_decisions import Passed, Verdict, steps_of

POLLS_PER_GENERATION = 40


class ContinuesAsNew(Exception):
    """This generation ends; the next one continues from the progress."""


class RolloutGeneration:
    """State of one generation of `rollout`."""

    def __init__(self, context: DurableOrchestrationContext, given: RolloutInput) -> None:
        self.context = context
        self.request = given.request
        deploy, model = given.request.pipeline.deploy, given.request.model
        assert deploy is not None, "only pipelines with deploy have rollouts"
        self.deploy: Deploy = deploy
        self.id = rollout_id(deploy.endpoint, model.version)
        self.deployment = deployment_name(model.version)
        self.log = ReplayLogger(context)
        self.timer = InterruptibleTimer(context)
        self.polls = 0
        now = context.current_utc_datetime
        self.progress = given.progress or RolloutProgress(state="waiting", since=now)
        self.status = RolloutStatus(
            id=self.id,
            pipeline=given.request.pipeline.name,
            run=given.request.run,
            model=model,
            endpoint=deploy.endpoint,
            deployment=self.deployment,
            state=self.progress.state,
            since=self.progress.since,
            step=self.progress.step,
            steps=len(self.steps),
            reason=self.progress.reason,
        )
        self.show()

    @property
    def previous(self) -> EndpointTraffic:
        """The endpoint's traffic before the rollout."""
        return self.progress.previous or EndpointTraffic()

    @property
    def steps(self) -> Sequence[RolloutStep]:
        """All steps of this rollout."""
        return steps_of(self.deploy, self.previous)

    def move(self, state: RolloutState, **changes: Any) -> None:
        """Enter a state."""
        now = self.context.current_utc_datetime
        self.progress = self.progress.model_copy(update={"state": state, "since": now, **changes})
        self.log.info("%s: %s %s", self.id, state, self.progress.reason or "")
        self.show(state=state, since=now, step=self.progress.step, reason=self.progress.reason)

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

    def notify(self, kind: RolloutNotificationKind) -> Generator[Any, Any, None]:
        """Notify; the rollout continues if this fails."""
        notification = Notification(
            id=notification_id(self.id, kind),
            kind=kind,
            at=self.context.current_utc_datetime,
            status=self.status,
            traceparent=self.request.traceparent,
        )
        request = PublishNotification(pipeline=self.request.pipeline, notification=notification)
        with contextlib.suppress(LandfallError):
            yield from call(self.context, request)

    def set_traffic(self, traffic: EndpointTraffic) -> Generator[Any, Any, None]:
        """Set the endpoint's traffic."""
        request = SetTraffic(endpoint=self.deploy.endpoint, kind=self.deploy.kind, traffic=traffic)
        yield from call(self.context, request)
        self.show(traffic=traffic.traffic, mirror=traffic.mirror)

    def observe(self) -> Step[Observation]:
        """Observe the deployment, people's decisions and other rollouts since the state began."""
        observed = yield from call(
            self.context,
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
        return observed

    def judge_answers(self, step: RolloutStep) -> Generator[Any, Any, Verdict]:
        """Measure and judge the deployment's answers since the step began."""
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
        measured = (yield from call(self.context, request)).guards
        shown = {
            guard.label: found.value
            for guard, found in zip(judged, measured, strict=True)
            if found.value is not None
        }
        self.show(answers=shown)
        return judge_answers(deploy.guards, judged, measured)
