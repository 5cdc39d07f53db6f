"""A version of a model goes into another workspace, with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from datetime import timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.approvals import (
    Agreed,
    AskApproval,
    SettleApproval,
    waiting_reason,
)
from orchestrations.contracts.promotions import (
    ENDED,
    CopyModelFiles,
    ListModelFiles,
    ModelFiles,
    PromotionInput,
    PromotionState,
    PromotionStatus,
    RecordPromotion,
    RegisterPromotedModel,
)
from orchestrations.errors import LandfallError, PermanentError, PromotionRefused
from orchestrations.platform.activities import ReplayLogger, call
from orchestrations.platform.waiting import InterruptibleTimer, growing_delay

ALERT_AFTER = timedelta(minutes=30)
# A step is at most some twenty history events, with its retries and its wait.
STEPS_PER_GENERATION = 30
Steps = Generator[Any, Any, None]


def promotion(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Promote a version of a model to another workspace.

    1. List the version's files. One that was written after the registration refuses the promotion.
    2. If the workspace asks people: ask them about exactly these files, and wait for the answer.
    3. List again: what was agreed to must still be there. Copy the files, some at a time; what is
       there already is adopted, and what is there with other bits refuses the promotion.
    4. Each copy is read back: its SHA-256 is that of the bits that were read from the source.
    5. Register the files there, under the same name and version, with the lineage in the tags.
    6. Record the end, and tell operators.

    If a step cannot be done now (an outage, a missing role), it is tried again with growing pauses
    for as long as that takes. After half an hour operators are alerted, once. If somebody cancels
    it, each of 1, 3, 4 and 5 refuses it, and the question to people is void.
    """
    run = _Promotion(context)
    for _ in range(STEPS_PER_GENERATION):
        try:
            yield from STEPS[run.status.state](run)
            run.know()
            if run.is_over:
                return run.status.to_dict()
        except PermanentError as error:
            if run.status.state in ENDED:  # its record cannot be written: not for ever
                raise
            run.move("refused", why=str(error))
        except LandfallError as error:
            yield from run.hold(str(error))
        if run.timer.restart_needed:
            break
    context.continue_as_new(run.given.to_dict())
    return None


class _Promotion:
    """State of one generation."""

    def __init__(self, context: DurableOrchestrationContext) -> None:
        self.context = context
        self.given = PromotionInput.from_dict(context.get_input())
        self.timer = InterruptibleTimer(context)
        self.log = ReplayLogger(context)
        self.is_over = False
        self._show()

    @property
    def status(self) -> PromotionStatus:
        return self.given.status

    @property
    def listed(self) -> ModelFiles:
        assert self.status.listed is not None, "the files are listed first"
        return self.status.listed

    def note(self, **changes: Any) -> None:
        """Change the status."""
        status = self.given.status.model_copy(update=changes)
        self.given = self.given.model_copy(update={"status": status})
        self._show()

    def move(self, state: PromotionState, **changes: Any) -> None:
        """Enter a state."""
        now = self.context.current_utc_datetime
        self.note(**{"state": state, "since": now, "why": None} | changes)
        self.log.info("%s: %s %s", self.status.id, state, self.status.why or "")

    def know(self) -> None:
        """No outage lasts any more."""
        if self.given.unknown_since is not None:
            self.given = self.given.model_copy(update={"unknown_since": None, "alerted": False})

    def hold(self, what: str) -> Steps:
        """Wait in an outage, or for a role."""
        now = self.context.current_utc_datetime
        since = self.given.unknown_since or now
        self.log.warning("%s: waits: %s", self.status.id, what)
        self.given = self.given.model_copy(update={"unknown_since": since})
        if self.status.state not in ENDED:
            self.note(why=f"waits, and is tried again: {what}")
        if now - since >= ALERT_AFTER and not self.given.alerted:
            try:
                yield from call(
                    self.context, RecordPromotion(promotion=self.status, waits_since=since)
                )
            except LandfallError as error:  # the next try alerts
                self.log.warning("%s: could not alert operators: %s", self.status.id, error)
            else:
                self.given = self.given.model_copy(update={"alerted": True})
        yield from self.timer.wait(now + growing_delay(now - since))

    def _show(self) -> None:
        self.context.set_custom_status(self.given.status.to_dict())


def _list(run: _Promotion) -> Steps:
    listed = yield from call(run.context, ListModelFiles(promotion=run.status))
    run.move("copying" if run.given.rule is None else "awaiting_approval", listed=listed)


def _ask(run: _Promotion) -> Steps:
    status, listed, now = run.status, run.listed, run.context.current_utc_datetime
    rule = run.given.rule
    assert rule is not None, "see `_list`"
    agreed = Agreed(
        before="promotion",
        pipeline=status.pipeline,
        model=f"{status.model}:{status.version}",
        run=status.run,
        promotion=status.id,
        destination=f"{status.to}: {listed.destination}",
        dataset_version=listed.dataset_version,
        files=f"files: {listed.files}, bytes: {listed.bytes}, hash {listed.hash}",
    )
    if status.approval is None:
        settled = yield from call(run.context, AskApproval(agreed=agreed, rule=rule, at=now))
    else:
        settled = yield from call(run.context, SettleApproval(approval=agreed.id, at=now))
    answer = settled.answer
    run.note(approval=agreed.id, why=waiting_reason(rule, settled.deadline))
    if answer is None:
        pause = growing_delay(now - status.since)
        pause = min(pause, max(settled.deadline - now, pause / 2))
        yield from run.timer.wait(now + pause)
        return
    if answer.verb != "approve":
        run.move("refused" if answer.verb == "void" else "rejected", why=answer.sentence)
        return
    now_listed = yield from call(run.context, ListModelFiles(promotion=run.status))
    if now_listed != listed:
        raise PromotionRefused(
            f"{agreed.model} is not what was approved: its files or the workspace have changed "
            f"(hash {listed.hash}, now {now_listed.hash})"
        )
    run.move("copying", approved=answer.sentence)


def _copy(run: _Promotion) -> Steps:
    request = CopyModelFiles(promotion=run.status, progress=run.given.progress)
    progress = yield from call(run.context, request)
    run.given = run.given.model_copy(update={"progress": progress})
    run.note(copied=progress.files, why=None)
    if progress.files == run.listed.files:
        run.move("registering")


def _register(run: _Promotion) -> Steps:
    registered = yield from call(run.context, RegisterPromotedModel(promotion=run.status))
    run.move("promoted", registered=registered)


def _record(run: _Promotion) -> Steps:
    yield from call(run.context, RecordPromotion(promotion=run.status))
    run.is_over = True


STEPS: Mapping[PromotionState, Callable[[_Promotion], Steps]] = {
    "checking": _list,
    "awaiting_approval": _ask,
    "copying": _copy,
    "registering": _register,
    **dict.fromkeys(ENDED, _record),
}
"""State → what is done in it."""
