from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from orchestrations.configuration.approve import Approval
from orchestrations.contracts.approvals import Agreed, Answer, Question, refusal_of

ASKED_AT = datetime(2026, 11, 21, tzinfo=UTC)
AGREED = Agreed(before="rollout", pipeline="digits", model="digits:3", run="digits-aa-1")


def question(answer: Answer | None = None, **rule: Any) -> Question:
    return Question(
        agreed=AGREED,
        hash=AGREED.hash,
        rule=Approval(before="rollout", hours=2, **rule),
        asked_at=ASKED_AT,
        answer=answer,
    )


def answer(
    verb: Literal["approve", "reject", "void"] = "approve", by: str | None = "ada", hours: float = 1
) -> Answer:
    return Answer(verb=verb, by=by, reason="good", at=ASKED_AT + timedelta(hours=hours))


@pytest.mark.parametrize(
    "fact",
    [
        {"model": "digits:4"},
        {"metrics": {"accuracy": 0.9}},
        {"observed": {"requests": 9.0}},
        {"dataset_version": "0123456789abcdef"},
        {"difference": "2 files more"},
        {"configuration": "ab"},
        {"verdict": "better than the champion"},
    ],
)
def test_another_fact_has_another_hash(fact: dict[str, Any]) -> None:
    assert AGREED.model_copy(update=fact).hash != AGREED.hash
    assert Agreed.from_dict(AGREED.to_dict()).hash == AGREED.hash


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (question(), answer()),
        (question(by=["eve", "ada"]), answer()),
        (question(answer()), answer()),
        # The same once more, after its time.
        (question(answer()), answer(hours=3)),
    ],
)
def test_an_answer_counts(asked: Question, given: Answer) -> None:
    assert refusal_of(asked, given, AGREED.hash) is None


def test_a_role_lets_answer_and_the_name_of_a_role_does_not() -> None:
    asked = question(by=["role:Approver"])
    assert refusal_of(asked, answer(), AGREED.hash, {"Approver"}) is None
    for by, roles in (("ada", {"Reader"}), ("role:Approver", set[str]())):
        refused = refusal_of(asked, answer(by=by), AGREED.hash, roles)
        assert refused is not None
        assert refused[0] == "not-allowed-to-answer"


@pytest.mark.parametrize(
    ("asked", "given", "kind", "words"),
    [
        (question(by=["eve"]), answer(), "not-allowed-to-answer", "these may: eve"),
        (question(), answer(hours=2), "approval-over", "over since 2026-11-21 02:00:00 UTC"),
        (question(answer()), answer("reject"), "approval-over", "approved by ada: good"),
        (question(answer()), answer(by="eve"), "approval-over", "approved by ada: good"),
        (question(answer("void", by=None)), answer(), "approval-over", "answered already: good"),
    ],
)
def test_an_answer_is_refused(asked: Question, given: Answer, kind: str, words: str) -> None:
    found = refusal_of(asked, given, AGREED.hash)
    assert found is not None
    assert found[0] == kind
    assert words in found[1]


def test_an_answer_to_something_else_is_refused_even_if_it_was_given_before() -> None:
    found = refusal_of(question(answer()), answer(), "another")
    assert found is not None
    assert found[0] == "approval-changed"


@pytest.mark.parametrize(("rule", "verb"), [("reject", "reject"), ("proceed", "approve")])
def test_silence_is_an_answer_at_the_deadline(rule: str, verb: str) -> None:
    asked = question(on_silence=rule)
    deadline = ASKED_AT + timedelta(hours=2)
    assert asked.silence(deadline - timedelta(seconds=1)) is None
    found = asked.silence(deadline)
    assert found is not None
    assert (found.verb, found.by) == (verb, None)
    assert found.sentence == (
        f"nobody answered in time (approve.hours is 2), and on_silence is {rule}"
    )
    assert asked.is_open(deadline - timedelta(seconds=1))
    assert not asked.is_open(deadline)
