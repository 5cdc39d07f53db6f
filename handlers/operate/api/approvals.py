"""/api/approvals: the questions to people before a model goes on, and their answers.

People who got a signed link (`handlers.notify.page_links`) answer that one question without a key.

An answer is recorded before the run or the rollout is woken up: if it misses the event, it finds
the record at its next poll.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import cast, get_args

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.notify.approvals import open_questions, read_question, record_answer
from handlers.notify.page_links import linked_approval
from handlers.operate.api.actions import Asked, keep_action, roles
from handlers.operate.api.requests import Document, Problem
from handlers.platform.bulkheads import STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import is_handed_over, is_live, wake_up
from orchestrations.contracts.approvals import Agreed, Answer, Question, Verb, refusal_of

_ID = re.compile(r"[A-Za-z0-9_-]{1,240}\.(registration|rollout|full-traffic|promotion)")


class ApprovalDetail(Document):
    """Answer of `GET /api/approvals/{approval}`."""

    id: str
    agreed: Agreed
    """What is agreed to."""
    hash: str
    """Of `agreed`; an answer names it."""
    hours: float
    on_silence: str
    by: list[str]
    """Who may answer; empty: everybody who may call the API."""
    asked_at: datetime
    deadline: datetime
    is_open: bool
    answer: Answer | None


class ApprovalList(Document):
    """Answer of `GET /api/approvals`: the open questions, in order of their deadlines."""

    approvals: list[ApprovalDetail]


class AnswerApproval(Asked):
    """Body of POST /api/approvals/{approval}/approve and …/reject."""

    reason: str = Field(min_length=1, max_length=300)
    hash: str = Field(min_length=1, max_length=64)
    """The hash of what the person saw, from the question."""


def list_approvals(clients: Clients, now: datetime) -> ApprovalList:
    """List the questions that wait for an answer."""
    found = [each for each in open_questions(clients) if each.is_open(now)]
    found.sort(key=lambda each: each.deadline)
    return ApprovalList(approvals=[_detail(each, now) for each in found])


def get_approval(clients: Clients, now: datetime, *, approval: str) -> ApprovalDetail:
    """Return one question: what is agreed to, until when, and its answer."""
    return _detail(_find(clients, approval), now)


async def approve(
    clients: Clients,
    starter: DurableOrchestrationClient,
    request: AnswerApproval,
    now: datetime,
    headers: Mapping[str, str],
    *,
    approval: str,
) -> ApprovalDetail:
    """Let the model go on. The answer counts once, for exactly what the hash names."""
    return await _answer(clients, starter, request, "approve", now, headers, approval=approval)


async def reject(
    clients: Clients,
    starter: DurableOrchestrationClient,
    request: AnswerApproval,
    now: datetime,
    headers: Mapping[str, str],
    *,
    approval: str,
) -> ApprovalDetail:
    """Keep the model back: its run ends as not promoted, its rollout is rolled back."""
    return await _answer(clients, starter, request, "reject", now, headers, approval=approval)


def get_linked_approval(clients: Clients, now: datetime, *, token: str) -> ApprovalDetail:
    """Return the question that a signed link opens. It answers nothing."""
    return get_approval(clients, now, approval=_linked(clients, token))


async def answer_linked_approval(
    clients: Clients,
    starter: DurableOrchestrationClient,
    request: AnswerApproval,
    now: datetime,
    headers: Mapping[str, str],
    *,
    token: str,
    verb: str,
) -> ApprovalDetail:
    """Approve or reject what a signed link opens, as with a function key."""
    approval = _linked(clients, token)
    if verb not in get_args(Verb):
        raise Problem(404, "unknown-answer", f"an answer is approve or reject, not {verb!r}")
    given = cast("Verb", verb)
    return await _answer(clients, starter, request, given, now, headers, approval=approval)


def _linked(clients: Clients, token: str) -> str:
    approval = linked_approval(clients.settings, token)
    if approval is None:
        raise Problem(401, "bad-link", "the link is not one of this app, or its secret has changed")
    return approval


async def _answer(
    clients: Clients,
    starter: DurableOrchestrationClient,
    request: AnswerApproval,
    verb: Verb,
    now: datetime,
    headers: Mapping[str, str],
    *,
    approval: str,
) -> ApprovalDetail:
    question = await STORAGE.ask(_find, clients, approval)
    answer = Answer(verb=verb, by=request.by, reason=request.reason, at=now)
    # With function keys nobody has checked the header.
    held = roles(headers) if clients.settings.sign_in == "entra" else ()
    _refuse(question, answer, request.hash, held)
    subject = question.agreed.subject
    instance = await starter.get_status(subject)
    is_run = question.agreed.is_of_run
    waits = is_live(instance) or (is_run and is_handed_over(instance))
    if question.answer is None and not waits:
        raise Problem(409, "approval-over", f"{subject} has ended: nothing waits for {approval}")
    question = await STORAGE.ask(record_answer, clients, approval, answer)
    _refuse(question, answer, request.hash, held)  # another answer was faster
    on, outcome = f"approval {approval}", f"{verb}: {question.agreed.model}, hash {question.hash}"
    await STORAGE.ask(keep_action, clients, verb, on, request, outcome=outcome)
    await wake_up(starter, subject)
    return _detail(question, now)


def _refuse(question: Question, answer: Answer, shown_hash: str, held: Collection[str]) -> None:
    refusal = refusal_of(question, answer, shown_hash, held)
    if refusal is not None:
        kind, sentence = refusal
        raise Problem(403 if kind == "not-allowed-to-answer" else 409, kind, sentence)


def _find(clients: Clients, approval: str) -> Question:
    question = read_question(clients, approval) if _ID.fullmatch(approval) else None
    if question is None:
        raise Problem(
            404, "unknown-approval", f"there is no approval {approval!r}; see GET /api/approvals"
        )
    return question


def _detail(question: Question, now: datetime) -> ApprovalDetail:
    rule = question.rule
    return ApprovalDetail(
        id=question.agreed.id,
        agreed=question.agreed,
        hash=question.hash,
        hours=rule.hours,
        on_silence=rule.on_silence,
        by=rule.by,
        asked_at=question.asked_at,
        deadline=question.deadline,
        is_open=question.is_open(now),
        answer=question.answer,
    )
