from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest

from orchestrations.configuration.approve import Approval
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.approvals import Answer, Question, Settled
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import CancelRequest, RunRequest, RunStatus, Scheduled
from orchestrations.contracts.training import RunInput
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.examples import PIPELINE
from tests.unit.orchestrations.training.simulated_workspace import QUICK, Cluster

CANCEL = CancelRequest(by="ada", reason="a wrong upload")


def asking(**rule: Any) -> Pipeline:
    rules = [Approval(before="registration", **rule)]
    return PIPELINE.model_copy(update={"approve": rules})


@dataclass
class Asked(Cluster):
    """A workspace with people; the question is kept as the app keeps it."""

    question: Question | None = None

    def answer(self, name: str, request: Any) -> Contract:
        if name == "ask_approval":
            self.question = self.question or Question(
                agreed=request.agreed,
                hash=request.agreed.hash,
                rule=request.rule,
                asked_at=request.at,
            )
        elif name == "settle_approval":
            assert self.question is not None
            answer = self.question.answer or self.question.silence(request.at)
            if answer is None and request.void is not None:
                answer = Answer(verb="void", reason=request.void, at=request.at)
            self.question = self.question.model_copy(update={"answer": answer})
        elif name == "schedule_retry" and request.request.judgement is not None:
            self.driver.at(
                self.seconds + request.delay_seconds, lambda: self.go_on(request.request)
            )
            return Scheduled()
        else:
            return super().answer(name, request)
        return Settled(
            deadline=self.question.deadline, answer=self.question.answer, cancel=self.cancel
        )

    def go_on(self, request: RunRequest) -> None:
        """Start the run that was handed over."""
        self.driver.start("retraining", request.run, RunInput(request=request).to_dict())

    def run(self, attempt: int = 1, pipeline: Pipeline = PIPELINE) -> RunStatus:
        first = self.start(attempt, pipeline)
        assert first.output is None, "it was handed over"
        return RunStatus.from_dict(self.driver.instances[first.id].output)

    def answer_at(self, seconds: float, verb: Literal["approve", "reject"]) -> None:
        def answer() -> None:
            assert self.question is not None
            given = Answer(verb=verb, by="ada", reason="its numbers", at=self.driver.now)
            self.question = self.question.model_copy(update={"answer": given})

        self.driver.at(seconds, answer)
        self.wake_at(seconds)

    @property
    def registered(self) -> list[Any]:
        return self.requests("register_model")


def test_an_approved_model_is_registered_with_the_name_and_the_reason() -> None:
    people = Asked(QUICK)
    people.answer_at(3_600, "approve")
    status = people.run(pipeline=asking())
    assert status.state == "succeeded"
    assert status.approval is None
    (registered,) = people.registered
    assert registered.approval == "approved by ada: its numbers"
    assert people.told == ["started", "awaiting_approval", "succeeded"]
    assert people.question is not None
    agreed = people.question.agreed
    assert agreed.verdict == "accuracy 0.97: better than the champion"
    assert agreed.metrics == {"accuracy": 0.97, "champion_accuracy": 0.93}


def test_a_rejected_model_is_not_registered() -> None:
    people = Asked(QUICK)
    people.answer_at(3_600, "reject")
    status = people.run(pipeline=asking())
    assert (status.state, status.reason) == ("not_promoted", "rejected by ada: its numbers")
    assert people.registered == []
    assert people.told == ["started", "awaiting_approval", "not_promoted"]


@pytest.mark.parametrize(
    ("on_silence", "state"), [("reject", "not_promoted"), ("proceed", "succeeded")]
)
def test_silence_decides_at_the_deadline_over_many_generations(on_silence: str, state: str) -> None:
    people = Asked(QUICK)
    status = people.run(pipeline=asking(hours=48, on_silence=on_silence))
    assert status.state == state
    waited = status.since - START
    assert timedelta(hours=48) < waited < timedelta(hours=49)
    assert len(people.requests("ask_approval")) == 1


def test_a_run_that_waits_is_shown_with_its_question() -> None:
    people = Asked(QUICK)
    people.answer_at(3_600, "approve")
    statuses = map(RunStatus.from_dict, people.start(pipeline=asking()).statuses)
    shown = [each for each in statuses if each.approval is not None]
    assert {each.state for each in shown} == {"judging"}
    assert shown[0].reason is not None
    assert shown[0].reason.startswith("waiting for approval before registration; ")


@pytest.mark.parametrize("state", ["cancelled", "superseded"])
def test_a_run_that_ends_otherwise_makes_its_question_void(state: str) -> None:
    people = Asked(QUICK)

    def supersede() -> None:
        people.superseded_by = "digits-ff-1"

    if state == "cancelled":
        people.cancel_at(3_600, CANCEL)
    else:
        people.driver.at(3_600, supersede)
    assert people.run(pipeline=asking()).state == state
    assert people.registered == []
    assert people.question is not None
    assert people.question.answer is not None
    assert people.question.answer.verb == "void"


def test_an_outage_delays_the_question_and_costs_no_attempt() -> None:
    people = Asked(QUICK, outages={"ask_approval": range(7_200)})
    people.answer_at(30_000, "approve")
    assert people.run(pipeline=asking()).state == "succeeded"
    assert len(people.requests("submit_job")) == 1
