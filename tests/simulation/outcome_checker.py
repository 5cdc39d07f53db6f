"""Invariants of the ends of runs: a verdict is no failure, and a mistake is paid for once."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.evidence import Evidence
from tests.simulation.fakes.training import CHECKPOINT_SECONDS
from tests.simulation.story import JobEnd

# Ends that no operator has to do anything about.
VERDICTS = frozenset({"succeeded", "not_promoted", "superseded"})
# Deterministic ends of a job: another attempt costs as much and changes nothing.
MISTAKES: frozenset[JobEnd] = frozenset({"leaves no metrics", "leaves a null metric"})
SERVICE_ERRORS = (
    "HttpResponseError",
    "ServiceResponseError",
    "ServiceBusError",
    "TimeoutError",
    "ClientAuthenticationError",
    "ContainerNotFound",
    "InvalidPipeline",
    "no result within",  # an activity's limit: the service hangs
)
"""How the text of a failure shows that a service was out."""
STACK = "Traceback (most recent call last)"


def verdicts_are_no_failures(evidence: Evidence) -> Iterator[str]:
    """They are alerted as information, and nothing is dead-lettered that redrive would train."""
    for run in evidence.runs.values():
        if run.state in VERDICTS and evidence.letters[run.id]:
            yield f"{run.id} ended as {run.state}, and is dead-lettered"
    for alert in evidence.alerts:
        severity = alert.application_properties[b"severity"]
        if alert.subject in VERDICTS and severity != b"information":
            yield f"alert {alert.message_id} has severity {severity}"


def mistakes_are_paid_for_once(evidence: Evidence) -> Iterator[str]:
    """A job's mistake that it would make again is not tried again."""
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.name)
        if run is None or life.end not in MISTAKES or life.states[-1][1] != "Completed":
            continue
        status = run.instance.custom_status
        message: str = ((status or {}).get("error") or {}).get("message", "")
        if run.state == "retrying" and not any(name in message for name in SERVICE_ERRORS):
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
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.name)
        if run is None or not life.preemptions or run.state not in ("retrying", "failed"):
            continue
        error = run.instance.custom_status["error"]
        ours = ("DeadlineExceeded", *SERVICE_ERRORS)
        is_explained = life.end not in ("completes", "is preempted", "is worse") or any(
            name in f"{error['type']}: {error['message']}" for name in ours
        )
        if not is_explained:
            yield f"{run.id} was preempted, and is {run.state}: {error['message'][:200]}"


INVARIANTS_OF_OUTCOMES = (
    work_is_resumed,
    preemptions_cost_no_attempt,
    verdicts_are_no_failures,
    mistakes_are_paid_for_once,
    messages_carry_no_stacks,
)
