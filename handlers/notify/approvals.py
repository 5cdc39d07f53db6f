"""Questions to people before a model goes on: their records, and the activities that write them.

A question is the blob `approvals/<id>.json`. While it is open, its metadata has what lists show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handlers.notify.outbox import trouble
from handlers.notify.page_links import approval_link
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.run_records import read_cancel_request, read_run_record
from handlers.platform.service_bus import OPS_ALERTS
from handlers.platform.tags import CONFIGURATION, find_version, tags_of
from orchestrations.contracts.approvals import (
    Agreed,
    Answer,
    AskApproval,
    Question,
    SettleApproval,
    Settled,
    waiting_reason,
)
from orchestrations.contracts.outcomes import promotion_sentence
from orchestrations.errors import TransientError
from orchestrations.names import alert_id

FOLDER = "approvals/"


@activity
def ask_approval(clients: Clients, request: AskApproval) -> Settled:
    """Write a question, unless it is there, and alert operators with what is agreed to.

    If the process dies in between, the activity is repeated: the question stands as it was first
    written, and the alert has the same id.
    """
    name = request.agreed.id
    question = read_question(clients, name)
    if question is None:
        agreed = _completed(clients, request.agreed)
        question = Question(agreed=agreed, hash=agreed.hash, rule=request.rule, asked_at=request.at)
        record_store.create(
            clients.records, _record(name), question.to_dict(), _listed(question.to_dict())
        )
        question = _read(clients, name)
    agreed = question.agreed
    url = approval_link(clients.settings, agreed)
    alert = trouble(
        "approval-asked",
        alert_id=alert_id("approval-asked", name),
        severity="warning",
        at=question.asked_at,
        data={
            "approval": name,
            "message": waiting_reason(question.rule, question.deadline),
            "agreed": agreed.to_dict(),
            "hash": question.hash,
            **({} if url is None else {"url": url}),
        },
        pipeline=agreed.pipeline,
        run=agreed.run,
        traceparent=request.traceparent,
    )
    send_in_background(clients, OPS_ALERTS, alert)
    return _settled(clients, question)


@activity
def settle_approval(clients: Clients, request: SettleApproval) -> Settled:
    """Read the answer to a question. At its deadline, or if it is void, that is recorded as it."""
    question = _read(clients, request.approval)
    if question.answer is None:
        answer = question.silence(request.at)
        if request.void is not None:
            answer = Answer(verb="void", reason=request.void, at=request.at)
        if answer is not None:
            question = record_answer(clients, request.approval, answer)
    return _settled(clients, question)


def read_question(clients: Clients, name: str) -> Question | None:
    """A question; None if there is none."""
    document = record_store.read(clients.records, _record(name))
    return None if document is None else Question.from_dict(document)


def list_questions(clients: Clients) -> Iterator[str]:
    """The ids of all questions, open and answered."""
    return map(_name, clients.records.list_blob_names(name_starts_with=FOLDER))


def open_questions(clients: Clients) -> Iterator[Question]:
    """The questions without an answer; their time may be over."""
    found = map(Question.from_dict, record_store.read_open(clients.records, FOLDER))
    return (each for each in found if each.answer is None)


def record_answer(clients: Clients, name: str, answer: Answer) -> Question:
    """Record an answer, and return the question with the answer that stands: the first one."""

    def change(before: Any | None) -> Any | None:
        question = Question.from_dict(before)
        if question.answer is not None:
            return None
        return question.model_copy(update={"answer": answer}).to_dict()

    record_store.update(clients.records, _record(name), change, _listed)
    return _read(clients, name)


def _completed(clients: Clients, agreed: Agreed) -> Agreed:
    """What is agreed to, with what the run and the lineage of a registered model say."""
    if agreed.is_of_run:
        return agreed
    name, _, version = agreed.model.rpartition(":")
    model = find_version(clients, name, version)
    record = read_run_record(clients, agreed.run) if agreed.run else None
    facts: dict[str, Any] = {}
    if model is not None:
        properties: Mapping[str, str] = model.properties or {}
        facts = {
            "configuration": tags_of(model).get(CONFIGURATION),
            "difference": properties.get("landfall.difference"),
        }
    if record is not None:
        status, judged = record.status, record.judged
        facts |= {
            "metrics": status.metrics or {},
            "dataset_version": status.dataset_version,
            "slices": () if judged is None else judged.slices,
        }
        if status.verdict is not None:
            facts["verdict"] = promotion_sentence(status.verdict, status.reason or "")
    return agreed.model_copy(update=facts)


def _settled(clients: Clients, question: Question) -> Settled:
    agreed = question.agreed
    cancel = read_cancel_request(clients, agreed.run) if agreed.is_of_run else None
    return Settled(deadline=question.deadline, answer=question.answer, cancel=cancel)


def _read(clients: Clients, name: str) -> Question:
    """A question that was asked.

    Raises:
        TransientError: its record is gone.
    """
    question = read_question(clients, name)
    if question is None:
        raise TransientError(f"record {_record(name)} was deleted: restore it")
    return question


def _listed(document: Any) -> Mapping[str, str]:
    return {record_store.OPEN: "true"} if document["answer"] is None else {}


def _record(name: str) -> str:
    return f"{FOLDER}{name}.json"


def _name(record: str) -> str:
    return record.removeprefix(FOLDER).removesuffix(".json")
