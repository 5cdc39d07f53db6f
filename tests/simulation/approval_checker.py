"""Invariants of approvals: nothing goes on without an answer, and no question stays open."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from localazure.functions.durable.engine.instance import Status
from orchestrations.configuration.approve import Approval, ApprovedStep, question_before
from orchestrations.contracts.approvals import Agreed
from orchestrations.names import approval_id
from tests.simulation.evidence import Evidence, Rollout
from tests.simulation.excuses import OF_JOBS, OUTBOX, excused, sent_later
from tests.simulation.rollout_checker import gains
from tests.simulation.scheduler import START
from tests.simulation.story import HOUR, Service

# A poll is every 15 minutes, and the rest is for its steps.
SETTLED_AFTER_SECONDS = 900.0 + 600.0
SERVICES_OF_QUESTIONS: tuple[Service, ...] = (*OF_JOBS, "metrics", "scoring", OUTBOX)


def models_are_registered_as_people_agree(evidence: Evidence) -> Iterator[str]:
    """No model of a pipeline that asks before the registration is registered without an answer."""
    for model in evidence.models:
        request = evidence.requests.get(model.tags.get("landfall.run"))
        is_challenger = model.tags.get("landfall.role") == "challenger"
        if request is None or (is_challenger and not model.tags.get("landfall.rollout")):
            continue
        rule = question_before(request.pipeline.approve, "registration")
        at = (model.creation_context.created_at - START).total_seconds()
        if rule is not None and not _is_agreed(evidence, request.run, rule, at):
            yield f"version {model.version} of {request.run} was registered at {at:.0f} s"


def traffic_moves_as_people_agree(evidence: Evidence) -> Iterator[str]:
    """No model gets its first live traffic, or all of it, without an answer."""
    for rollout in evidence.rollouts.values():
        if rollout.is_back:
            continue
        for at, share in gains(evidence, rollout):
            steps: list[ApprovedStep] = ["rollout", *(["full-traffic"] if share == 100 else [])]
            for step in steps:
                rule = question_before(rollout.pipeline.approve, step)
                if rule is not None and not _is_agreed(evidence, rollout.id, rule, at):
                    yield f"{rollout.id} got {share} % of the traffic at {at:.0f} s: {step}"


def _is_agreed(evidence: Evidence, subject: str, rule: Approval, at: float) -> bool:
    """Whether people had approved it, or had been silent for so long that it goes on."""
    name = approval_id(subject, rule.before)
    question = evidence.records("approvals/").get(f"approvals/{name}.json")
    if question is None:
        return False
    sent = evidence.world.acts.approvers.sent[name]
    allowed = [each for each in sent if each.hash_is_right and each.by in (rule.by or [each.by])]
    if any(each.is_accepted and each.verb == "reject" for each in allowed):
        return False
    if any(
        each.verb == "approve" and each.status in (None, 200) and each.at <= at for each in allowed
    ):
        return True
    deadline = _seconds(question["asked_at"]) + rule.hours * HOUR
    return rule.on_silence == "proceed" and at >= deadline


def answers_are_bound_and_given_once(evidence: Evidence) -> Iterator[str]:
    """Only an answer in time, to what was shown, of somebody who may, is taken; and only one."""
    for name, sent in evidence.world.acts.approvers.sent.items():
        question = evidence.records("approvals/")[f"approvals/{name}.json"]
        deadline = _seconds(question["asked_at"]) + question["rule"]["hours"] * HOUR
        accepted = [each for each in sent if each.is_accepted]
        if len({each.verb for each in accepted}) > 1:
            yield f"{name} was approved and rejected"
        for each in accepted:
            may = each.by in (question["rule"]["by"] or [each.by])
            if not (each.hash_is_right and may and each.at < deadline):
                yield f"{name}: {each} is taken"


def questions_are_settled(evidence: Evidence) -> Iterator[str]:
    """A question has its answer soon after its deadline, if what it is about goes on."""
    for record, question in evidence.records("approvals/").items():
        agreed, answer = question["agreed"], question["answer"]
        instance = evidence.world.hub.instances[Agreed.from_dict(agreed).subject]
        asked_at = _seconds(question["asked_at"])
        deadline = asked_at + question["rule"]["hours"] * HOUR
        if answer is None:
            if instance.status is Status.COMPLETED:
                yield f"{record} is open at the end"
            continue
        answered_at = _seconds(answer["at"])
        late = answered_at - deadline - SETTLED_AFTER_SECONDS
        # A run goes on with a message.
        allowed = excused(evidence, asked_at, answered_at, SERVICES_OF_QUESTIONS)
        if late > allowed + sent_later(evidence, asked_at, answered_at):
            yield f"{record} was answered {late:.0f} s too late: {answer}"


def rejections_hold(evidence: Evidence) -> Iterator[str]:
    """What is rejected ends so: the run is not promoted, and the rollout has not gone live."""
    for record, question in evidence.records("approvals/").items():
        if question["answer"] is None or question["answer"]["verb"] != "reject":
            continue
        agreed = question["agreed"]
        name = Agreed.from_dict(agreed).subject
        if agreed.get("promotion"):
            continue  # see `promotion_checker`
        ended: Rollout | None = evidence.rollouts.get(name)
        state = evidence.runs[name].state if ended is None else ended.state
        if state in ("succeeded", "live", "finished"):
            yield f"{record} was rejected, and {name} is {state}"


def _seconds(moment: str) -> float:
    return (datetime.fromisoformat(moment) - START).total_seconds()


INVARIANTS_OF_APPROVALS = (
    models_are_registered_as_people_agree,
    traffic_moves_as_people_agree,
    answers_are_bound_and_given_once,
    questions_are_settled,
    rejections_hold,
)
