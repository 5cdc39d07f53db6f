"""The questions of a rollout to people: before its first live traffic, and before all of it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from orchestrations.configuration.approve import Approval
from orchestrations.contracts.approvals import (
    Agreed,
    AskApproval,
    SettleApproval,
    Settled,
    waiting_reason,
)
from orchestrations.names import approval_id
from orchestrations.platform.activities import Step
from orchestrations.rollout.decisions import Broken, Passed, Verdict, Wait, questions_before
from orchestrations.rollout.generation import RolloutGeneration


def questions_of(run: RolloutGeneration, number: int) -> Sequence[Approval]:
    """The questions before the traffic of a step; a rollback of the champion asks none."""
    asked = [] if run.is_rollback else run.request.pipeline.approve
    return questions_before(asked, run.steps, number)


def ask_people(run: RolloutGeneration, number: int) -> Generator[Any, Any, Verdict]:
    """Whether people agree that the traffic of a step is set: they are asked once, and waited for.

    `Broken`: they reject it.
    """
    for rule in questions_of(run, number):
        answered = run.progress.approvals.get(rule.before)
        if answered:
            continue
        name = approval_id(run.id, rule.before)
        if answered is None:
            settled = yield from _ask(run, rule, name)
        else:
            now = run.context.current_utc_datetime
            settled = yield from run.call(SettleApproval(approval=name, at=now))
        reason = waiting_reason(rule, settled.deadline)
        if settled.answer is None:
            run.show(approval=name)
            return Wait(reason)
        _note(run, rule, settled.answer.sentence)
        run.show(approval=None)
        if settled.answer.verb != "approve":
            return Broken(settled.answer.sentence)
    return Passed()


def _ask(run: RolloutGeneration, rule: Approval, name: str) -> Step[Settled]:
    request, status = run.request, run.status
    measured = {
        "requests": status.requests,
        "error_rate": status.error_rate,
        "latency_p95_ms": status.latency_p95_ms,
        **status.answers,
    }
    agreed = Agreed(
        before=rule.before,
        pipeline=request.pipeline.name,
        model=f"{request.model.name}:{request.model.version}",
        run=request.run,
        rollout=run.id,
        observed={key: value for key, value in measured.items() if value is not None},
    )
    now = run.context.current_utc_datetime
    settled = yield from run.call(
        AskApproval(agreed=agreed, rule=rule, at=now, traceparent=request.traceparent)
    )
    run.show(reason=waiting_reason(rule, settled.deadline), approval=name)
    yield from run.announce("awaiting_approval", about=name)
    _note(run, rule, "")
    return settled


def void_questions(run: RolloutGeneration, why: str) -> Generator[Any, Any, None]:
    """End the questions that are open, since the rollout ends."""
    now = run.context.current_utc_datetime
    for before, answered in run.progress.approvals.items():
        if not answered:
            name = approval_id(run.id, before)
            yield from run.call_if_possible(SettleApproval(approval=name, at=now, void=why))


def _note(run: RolloutGeneration, rule: Approval, sentence: str) -> None:
    run.note(approvals={**run.progress.approvals, rule.before: sentence})
