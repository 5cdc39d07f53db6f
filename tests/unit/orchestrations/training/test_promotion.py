from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from orchestrations.configuration.approve import Approval
from orchestrations.contracts.approvals import Agreed, Answer, Settled
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.promotions import (
    CopyProgress,
    ModelFiles,
    PromotionInput,
    PromotionStatus,
)
from orchestrations.contracts.runs import Model
from orchestrations.errors import PromotionRefused, TransientError
from orchestrations.training.promotion import promotion
from tests.unit.orchestrations.driver import START, Driver, answered_by

HOUR = 3_600.0
LISTED = ModelFiles(hash="aa", files=2, bytes=3, destination="/workspaces/production")
STATUS = PromotionStatus(
    pipeline="digits",
    model="digits",
    version="3",
    run="digits-aa-1",
    to="production",
    by="ada",
    reason="it is better",
    asked_at=START,
    since=START,
)


@dataclass
class Elsewhere:
    """The other workspace; `fails` is asked before each step."""

    fails: Callable[[str, float], Exception | None] = lambda _name, _now: None
    answer_after: float = HOUR
    lists: list[ModelFiles] = field(default_factory=lambda: [LISTED])
    """The last one stays."""
    asked: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])

    def __post_init__(self) -> None:
        self.driver = Driver(
            activities=answered_by(self.answer), orchestrators={promotion.__name__: promotion}
        )

    def answer(self, name: str, request: Any) -> Contract:
        failure = self.fails(name, self.driver.seconds)
        if failure is not None:
            raise failure
        self.asked.append((name, request))
        match name:
            case "list_model_files":
                return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            case "ask_approval" | "settle_approval":
                is_over = self.driver.seconds >= self.answer_after
                answer = Answer(verb="approve", by="bob", reason="its numbers", at=request.at)
                deadline = START.replace(year=START.year + 1)
                return Settled(deadline=deadline, answer=answer if is_over else None)
            case "copy_model_files":
                return CopyProgress(files=request.progress.files + 1)
            case "register_promoted_model":
                return Model(name="digits", version="3", path="azureml://…")
            case _:
                return Done()

    def promote(self, rule: Approval | None = None) -> PromotionStatus:
        given = PromotionInput(status=STATUS, rule=rule).to_dict()
        self.driver.start(promotion.__name__, STATUS.id, given)
        self.driver.run()
        return PromotionStatus.from_dict(self.driver.instances[STATUS.id].output)

    def requests(self, name: str) -> list[Any]:
        return [request for asked, request in self.asked if asked == name]


def test_people_are_asked_about_exactly_what_is_copied() -> None:
    there = Elsewhere()
    ended = there.promote(Approval(before="promotion"))
    assert (ended.state, ended.copied, ended.approved) == (
        "promoted",
        2,
        "approved by bob: its numbers",
    )
    (question,) = there.requests("ask_approval")
    agreed: Agreed = question.agreed
    assert (agreed.files, agreed.destination) == (
        "files: 2, bytes: 3, hash aa",
        "production: /workspaces/production",
    )
    assert agreed.hash != agreed.model_copy(update={"files": "files: 2, bytes: 3, hash bb"}).hash
    assert (agreed.subject, agreed.is_of_run) == (STATUS.id, False)
    (told,) = there.requests("record_promotion")
    assert told.promotion == ended


def test_what_has_changed_since_it_was_approved_is_refused() -> None:
    there = Elsewhere(lists=[LISTED, LISTED.model_copy(update={"hash": "bb"})])
    ended = there.promote(Approval(before="promotion"))
    assert ended.state == "refused"
    assert "is not what was approved" in str(ended.why)
    assert there.requests("copy_model_files") == []


def test_an_outage_is_waited_for_and_operators_are_alerted_once() -> None:
    def fails(name: str, now: float) -> Exception | None:
        return TransientError("503") if name == "copy_model_files" and now < 10 * HOUR else None

    there = Elsewhere(fails)
    ended = there.promote()
    assert (ended.state, ended.why) == ("promoted", None)
    held, told = there.requests("record_promotion")
    assert held.promotion.why == "waits, and is tried again: 503"
    assert (held.waits_since - START).total_seconds() < HOUR
    assert (told.waits_since, told.promotion.state) == (None, "promoted")


def test_a_refusal_ends_it_and_is_told() -> None:
    def fails(name: str, _: float) -> Exception | None:
        return PromotionRefused("other bits") if name == "register_promoted_model" else None

    there = Elsewhere(fails)
    ended = there.promote()
    assert (ended.state, ended.why, ended.registered) == ("refused", "other bits", None)
    assert len(there.requests("record_promotion")) == 1
