"""The question of a run to people, before its model is registered."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from orchestrations.configuration.approve import Approval
from orchestrations.contracts.approvals import (
    Agreed,
    Answer,
    AskApproval,
    SettleApproval,
    Settled,
    waiting_reason,
)
from orchestrations.contracts.datasets import CheckSuperseded
from orchestrations.contracts.outcomes import promotion_sentence
from orchestrations.contracts.runs import CancelRequest, Judgement, RunRequest
from orchestrations.contracts.training import RunInput
from orchestrations.errors import LandfallError, TransientError
from orchestrations.names import approval_id
from orchestrations.platform.activities import Step, call
from orchestrations.platform.waiting import (
    POLLS_PER_GENERATION,
    InterruptibleTimer,
    growing_delay,
)
from orchestrations.training.run_progress import RunProgress

Ended = Answer | CancelRequest | str
"""People's answer, the cancellation of the run, or the run that has claimed a newer dataset."""


def wait_for_approval(
    run: RunProgress, rule: Approval, judgement: Judgement
) -> Generator[Any, Any, Ended | None]:
    """Ask people, once, and wait for the end of the question; None if it continues as new.

    1. Write the question, alert operators and notify; then read its answer.
    2. Without an answer: end if the run is to be cancelled, or if a newer dataset was claimed. The
       question is void then, unless a person is faster.
    3. At first: end, and go on as an instance of its own (`RunProgress.hand_over`): new data
       does not wait for people then.
    4. Wait for an event, or a growing timer, and read the answer again. At the deadline, silence is
       recorded as the answer.

    In an outage it tries again for as long as that takes: what a job has trained is not thrown away
    because nobody can be asked.
    """
    name, timer = approval_id(run.id, rule.before), InterruptibleTimer(run.context)
    for _ in range(POLLS_PER_GENERATION):
        now = run.context.current_utc_datetime
        delay = growing_delay(now - judgement.status.since)
        try:
            settled = yield from _look(run, rule, judgement, name)
            judgement = judgement.model_copy(update={"polls": judgement.polls + 1})
            ended = yield from _end_of(run, settled, name)
        except TransientError as error:
            run.log.warning("%s: cannot read approval %s yet: %s", run.id, name, error)
        else:
            if ended is not None:
                run.update(approval=None, reason=None)
                return ended
            # Also without a landing: no exported history tells whether there is one.
            own = judgement.model_copy(update={"handed_over": True})
            if not judgement.handed_over and (yield from run.hand_over(_further(run, own))):
                return None
            delay = min(delay, max(settled.deadline - now, delay / 2))
        yield from timer.wait(now + delay)
        if timer.restart_needed:
            break
    run.context.continue_as_new(RunInput(request=_further(run, judgement)).to_dict())
    return None


def _further(run: RunProgress, judgement: Judgement) -> RunRequest:
    """The request with which the run goes on to wait."""
    judgement = judgement.model_copy(update={"status": run.status})
    return run.request.model_copy(update={"judgement": judgement})


def _look(run: RunProgress, rule: Approval, judgement: Judgement, name: str) -> Step[Settled]:
    now = run.context.current_utc_datetime
    if judgement.polls:
        return (yield from call(run.context, SettleApproval(approval=name, at=now)))
    request = AskApproval(
        agreed=_agreed(run, rule, judgement), rule=rule, at=now, traceparent=run.traceparent
    )
    settled = yield from call(run.context, request)
    run.update(reason=waiting_reason(rule, settled.deadline), approval=name)
    yield from run.record()
    with contextlib.suppress(LandfallError):  # operators are alerted; the question is listed
        yield from run.tell("awaiting_approval", about=name)
    return settled


def _agreed(run: RunProgress, rule: Approval, judgement: Judgement) -> Agreed:
    judged = run.known.judged
    return Agreed(
        before=rule.before,
        pipeline=run.request.pipeline.name,
        model=run.request.pipeline.model.name,
        run=run.id,
        verdict=promotion_sentence(judgement.verdict, judgement.reason),
        metrics=run.status.metrics or {},
        slices=judged.slices if judged is not None else (),
        dataset_version=run.request.dataset.version,
        difference=run.request.difference,
        configuration=run.request.configuration,
    )


def _end_of(run: RunProgress, settled: Settled, name: str) -> Generator[Any, Any, Ended | None]:
    """The end of the question, if it has ended."""
    answer, cancel = settled.answer, settled.cancel
    if answer is not None and answer.verb != "void":
        return answer
    pipeline, dataset = run.request.pipeline.name, run.request.dataset
    if cancel is not None:
        why, ended = f"the run was cancelled by {cancel.by}: {cancel.reason}", cancel
    else:
        newer = yield from call(run.context, CheckSuperseded(pipeline=pipeline, dataset=dataset))
        if newer.by is None:
            return None
        why, ended = f"a newer dataset has been claimed by {newer.by}", newer.by
    now = run.context.current_utc_datetime
    settled = yield from call(run.context, SettleApproval(approval=name, at=now, void=why))
    is_void = settled.answer is not None and settled.answer.verb == "void"
    return ended if is_void else settled.answer
