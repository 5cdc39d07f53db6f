"""Invariants of the ends of jobs and runs: limits hold, a mistake is paid for once."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.simulation.evidence import Evidence
from tests.simulation.excuses import OF_JOBS, away, excused
from tests.simulation.fakes.training import CHECKPOINT_SECONDS, JobLife
from tests.simulation.scheduler import START
from tests.simulation.story import JobEnd

# Ends that no operator has to do anything about.
VERDICTS = frozenset({"succeeded", "not_promoted", "superseded"})
# Deterministic ends of a job: another attempt costs as much and changes nothing.
MISTAKES: frozenset[JobEnd] = frozenset(
    {"leaves no metrics", "leaves a null metric", "leaves a wrong comparison"}
)
SERVICE_ERRORS = (
    "HttpResponseError",
    "ServiceResponseError",
    "ServiceBusError",
    "TimeoutError",
    "ClientAuthenticationError",
    "is refused with 403",  # what the app makes of an HttpResponseError for want of a role
    "ContainerNotFound",
    "InvalidPipeline",
    "no result within",  # an activity's limit: the service hangs
)
"""How the text of a failure shows that a service was out."""
STACK = "Traceback (most recent call last)"
# A run polls at least every five minutes; the rest is for its steps.
SUPERVISION_SECONDS = 300.0 + 240.0
# A step of a run outlasts an outage of half an hour.
OUTLASTED_SECONDS = 1_800.0


def verdicts_are_no_failures(evidence: Evidence) -> Iterator[str]:
    """They are alerted as information, and nothing is dead-lettered that redrive would train."""
    for run in evidence.runs.values():
        if run.state in VERDICTS and evidence.letters[run.id]:
            yield f"{run.id} ended as {run.state}, and is dead-lettered"
    for alert in evidence.alerts:
        severity = alert.application_properties[b"severity"]
        if alert.subject in VERDICTS and severity != b"information":
            yield f"alert {alert.message_id} has severity {severity}"


def _last_jobs(evidence: Evidence) -> Collection[JobLife]:
    """The job that each run came to last: a check's job may have been before it."""
    return {life.run: life for life in evidence.world.cluster.lives.values()}.values()


def mistakes_are_paid_for_once(evidence: Evidence) -> Iterator[str]:
    """A job's mistake that it would make again is not tried again."""
    for life in _last_jobs(evidence):
        run = evidence.runs.get(life.run)
        if run is None or life.end not in MISTAKES or life.states[-1][1] != "Completed":
            continue
        error = (run.instance.custom_status or {}).get("error") or {}
        message: str = error.get("message", "")
        # A job whose time was over, and that ended while it was cancelled, is tried again.
        is_tried_again = run.state == "retrying" and error.get("type") != "DeadlineExceeded"
        if is_tried_again and not any(name in message for name in SERVICE_ERRORS):
            yield f"{run.id} {life.end}, and is tried again: {message}"


def messages_carry_no_stacks(evidence: Evidence) -> Iterator[str]:
    """People read them: statuses, alerts, dead letters."""
    for instance in evidence.world.hub.instances.values():
        if any(STACK in status for status in instance.custom_statuses):
            yield f"the status of {instance.id} has a stack"
    letters = evidence.world.broker.dead_letters("rejected-runs").messages
    for message in [*evidence.alerts, *letters]:
        if STACK.encode() in message.content:
            yield f"message {message.message_id} has a stack"


def work_is_resumed(evidence: Evidence) -> Iterator[str]:
    """What was trained on before a node was lost is not trained on again."""
    reached: dict[str, float] = {}
    for life in evidence.world.cluster.lives.values():
        training = life.name.rpartition("-")[0]  # all attempts of a round of training
        for resumed_from, worked in life.worked:
            known = reached.get(training, 0.0)
            if resumed_from < known:
                yield f"job {life.name} began at {resumed_from:.0f} s of work, not {known:.0f} s"
            done = resumed_from + worked
            kept = done - done % CHECKPOINT_SECONDS
            reached[training] = max(known, kept)


def preemptions_cost_no_attempt(evidence: Evidence) -> Iterator[str]:
    """Azure ML restarts a job whose nodes were taken: its run goes on."""
    for life in _last_jobs(evidence):
        run = evidence.runs.get(life.run)
        if run is None or not life.preemptions or run.state not in ("retrying", "failed"):
            continue
        error = run.instance.custom_status["error"]
        ours = ("DeadlineExceeded", *SERVICE_ERRORS)
        is_explained = life.end not in ("completes", "is preempted", "is worse") or any(
            name in f"{error['type']}: {error['message']}" for name in ours
        )
        if not is_explained:
            yield f"{run.id} was preempted, and is {run.state}: {error['message'][:200]}"


def outages_cost_no_attempt(evidence: Evidence) -> Iterator[str]:
    """A run whose job has completed waits for what it needs, and trains nothing again."""
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.run)
        if run is None or life.end in MISTAKES or life.states[-1][1] != "Completed":
            continue
        if run.is_broken or run.state not in ("retrying", "failed"):
            continue
        message = run.instance.custom_status["error"]["message"]
        ended, gave_up = life.states[-1][0], (run.instance.last_updated_at - START).total_seconds()
        is_outage = any(name in message for name in SERVICE_ERRORS)
        if is_outage and away(evidence, ended, gave_up, OF_JOBS) < OUTLASTED_SECONDS:
            yield f"{run.id} is {run.state} {gave_up - ended:.0f} s after its job: {message[:200]}"


def jobs_are_ended_within_their_limits(evidence: Evidence) -> Iterator[str]:
    """A deadline or a cancellation holds, also while Service Bus hangs."""
    for life in evidence.world.cluster.lives.values():
        request = evidence.requests.get(life.run)
        limits = (evidence.world.pipeline if request is None else request.pipeline).limits
        for status, limit in (
            ("Queued", limits.queued_seconds),
            ("Running", limits.running_seconds),
        ):
            for began, ended in _spans(life, status, evidence.world.scheduler.time()):
                late = ended - began - limit - SUPERVISION_SECONDS
                if late > excused(evidence, began, ended) and not _has_no_run(evidence, life):
                    yield f"job {life.name} was {status} for {ended - began:.0f} s"


def cancellations_hold(evidence: Evidence) -> Iterator[str]:
    """A cancellation that was accepted reaches the job, also while Service Bus hangs."""
    for name, at in evidence.world.acts.cancelled.items():
        life, run = evidence.world.cluster.lives.get(name), evidence.runs[name]
        if life is None or run.is_broken:
            continue
        reached = evidence.world.scheduler.time()
        if life.cancelled_at is not None:
            reached = life.cancelled_at
        elif life.has_ended:
            reached = life.states[-1][0]
        began = max(at, life.states[0][0])
        if reached - began - SUPERVISION_SECONDS > excused(evidence, began, reached):
            yield f"job {name} was cancelled at {at:.0f} s, and went on until {reached:.0f} s"


def _spans(life: JobLife, status: str, end: float) -> Iterator[tuple[float, float]]:
    for number, (began, each) in enumerate(life.states):
        following = life.states[number + 1][0] if number + 1 < len(life.states) else end
        if each == status:
            cancelled = life.cancelled_at
            yield began, following if cancelled is None else min(following, cancelled)


def _has_no_run(evidence: Evidence, life: JobLife) -> bool:
    run = evidence.runs.get(life.run)
    return run is None or run.is_broken  # reconciliation ends it


INVARIANTS_OF_OUTCOMES = (
    jobs_are_ended_within_their_limits,
    cancellations_hold,
    outages_cost_no_attempt,
    work_is_resumed,
    preemptions_cost_no_attempt,
    verdicts_are_no_failures,
    mistakes_are_paid_for_once,
    messages_carry_no_stacks,
)
