"""Questions to people before a model goes on, and their answers.

A question is written once, with what is agreed to, and is answered once: by a person, by the end of
its time, or by the end of what it is about. All three write the same record, so that one is first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from orchestrations.configuration.approve import ROLE, Approval, ApprovedStep
from orchestrations.contracts.base import Contract, QuickRequest, Traceparent
from orchestrations.contracts.comparison import SliceChange
from orchestrations.contracts.runs import CancelRequest
from orchestrations.names import VERSION_HEX_DIGITS, approval_id

Verb = Literal["approve", "reject"]


class Agreed(Contract):
    """What people agree to: the facts about a model, and nothing else."""

    before: ApprovedStep
    pipeline: str
    model: str
    """Its name; with its version when it has one: `digits:3`."""
    run: str
    """The run that trained it."""
    rollout: str | None = None
    promotion: str | None = Field(default=None, exclude_if=lambda it: it is None)
    destination: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The workspace that it is promoted to."""
    files: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Number, bytes and hash of the files that are promoted."""
    verdict: str | None = None
    """The gate's, in a sentence."""
    metrics: Mapping[str, float] = Field(default_factory=dict[str, float])
    slices: tuple[SliceChange, ...] = ()
    """The worst ones first, if the gate compared them."""
    observed: Mapping[str, float] = Field(default_factory=dict[str, float])
    """What was measured in the rollout's step before."""
    dataset_version: str | None = None
    difference: str | None = None
    """What differs from the dataset version that was trained on before."""
    configuration: str | None = None

    @property
    def hash(self) -> str:
        """A hash of exactly these facts."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:VERSION_HEX_DIGITS]

    @property
    def subject(self) -> str:
        """What waits for the answer: promotion, rollout or run; also the name of its instance."""
        return self.promotion or self.rollout or self.run

    @property
    def is_of_run(self) -> bool:
        """Whether a run waits for the answer."""
        return self.subject == self.run

    @property
    def id(self) -> str:
        """The question's id."""
        return approval_id(self.subject, self.before)


class Answer(Contract):
    """The end of a question."""

    verb: Literal[Verb, "void"]
    """`void`: what it was about has ended otherwise."""
    by: str | None = None
    """None: nobody answered in time, or the question is void."""
    reason: str
    at: datetime

    @property
    def sentence(self) -> str:
        """Who answered what, and why."""
        if self.by is None:
            return self.reason
        return f"{'approved' if self.verb == 'approve' else 'rejected'} by {self.by}: {self.reason}"


class Question(Contract):
    """The record `approvals/<id>.json`."""

    agreed: Agreed
    hash: str
    """Of `agreed`. An answer names it, so that it is about what the person saw."""
    rule: Approval
    asked_at: datetime
    answer: Answer | None = None

    @property
    def deadline(self) -> datetime:
        """When silence is the answer."""
        return self.asked_at + timedelta(hours=self.rule.hours)

    def is_open(self, now: datetime) -> bool:
        """Whether it can be answered."""
        return self.answer is None and now < self.deadline

    def silence(self, now: datetime) -> Answer | None:
        """The answer that silence gives; None before the deadline."""
        if now < self.deadline:
            return None
        verb, asked = self.rule.on_silence, f"approve.hours is {self.rule.hours:g}"
        reason = f"nobody answered in time ({asked}), and on_silence is {verb}"
        return Answer(verb="approve" if verb == "proceed" else "reject", reason=reason, at=now)


Refusal = tuple[Literal["not-allowed-to-answer", "approval-changed", "approval-over"], str]
"""The type of the problem document, and a sentence."""


def refusal_of(
    question: Question, answer: Answer, shown_hash: str, roles: Collection[str] = ()
) -> Refusal | None:
    """Why a person's answer does not count; None if it does, also for the same one once more.

    Args:
        question: as it is recorded.
        answer: the person's.
        shown_hash: the hash of what the person saw.
        roles: the person's, where Entra has checked them.
    """
    name, recorded = question.agreed.id, question.answer
    if shown_hash != question.hash:
        return "approval-changed", (
            f"what is agreed to in {name} has changed: its hash is {question.hash}, and the answer "
            f"is about {shown_hash}; look at it again"
        )
    names = {f"{ROLE}{each}" for each in roles}
    if answer.by is not None and not answer.by.startswith(ROLE):
        names.add(answer.by)
    if question.rule.by and names.isdisjoint(question.rule.by):
        allowed = ", ".join(question.rule.by)
        return "not-allowed-to-answer", f"{answer.by} may not answer {name}; these may: {allowed}"
    if recorded is not None and (recorded.verb, recorded.by) == (answer.verb, answer.by):
        return None
    if recorded is not None:
        return "approval-over", f"{name} is answered already: {recorded.sentence}"
    if answer.at >= question.deadline:
        over = _utc(question.deadline)
        return "approval-over", f"the time for an answer to {name} is over since {over}"
    return None


def waiting_reason(rule: Approval, deadline: datetime) -> str:
    """What a run or a rollout waits for, for people."""
    silence = "goes on" if rule.on_silence == "proceed" else "is rejected"
    return (
        f"waiting for approval before {rule.before}; without an answer it {silence} at "
        f"{_utc(deadline)}"
    )


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


class Settled(Contract):
    """How far a question is."""

    deadline: datetime
    answer: Answer | None
    """None: it is open."""
    cancel: CancelRequest | None = Field(default=None, exclude_if=lambda it: it is None)
    """A request to cancel the run that waits."""


class AskApproval(QuickRequest[Settled]):
    """Input of `ask_approval`: write the question, and alert operators."""

    agreed: Agreed
    """Of a rollout, without what the model's run and its lineage say: the activity adds it."""
    rule: Approval
    at: datetime
    traceparent: Traceparent = None


class SettleApproval(QuickRequest[Settled]):
    """Input of `settle_approval`: read the answer; at the deadline, silence is recorded as it."""

    approval: str
    at: datetime
    void: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why the question is void, if it is; it is then recorded as its answer."""
