"""`approve`: people are asked before a model goes on, and answer, or not."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

from handlers.operate.api import approvals as approvals_of_api
from localazure.functions.durable.engine.instance import Status
from orchestrations.configuration.approve import Approval, ApprovedStep, question_before
from orchestrations.contracts.approvals import Agreed
from orchestrations.names import approval_id
from orchestrations.rollout import approving
from tests.simulation.excuses import OF_JOBS, OUTBOX, excused, sent_later
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.rollout_checker import gains
from tests.simulation.scheduler import START
from tests.simulation.story import (
    HOUR,
    Deploy,
    Item,
    JobFate,
    OutageAfter,
    QuestionFate,
    Redrive,
    Service,
    Terminate,
)
from tests.simulation.weeks import FIRST, LATER, UPLOAD, quiet_week

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence
    from tests.simulation.subjects import Rollout
    from tests.simulation.world import World

Verb = Literal["approve", "reject"]
WRONG_HASH = "0" * 16


@dataclass
class Sent:
    """An answer that a person sent."""

    verb: Verb
    at: float
    by: str
    hash_is_right: bool
    status: int | None = None
    """None: no answer of the API came yet, and it may have taken effect."""

    @property
    def is_accepted(self) -> bool:
        return self.status == 200


class Approvers:
    """Sees every question when it is written."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._people = world.acts
        self.sent: dict[str, list[Sent]] = {}
        """Question → the answers to it, in order."""

    def see(self, record: str) -> None:
        """A question was written, or is written again."""
        name = record.removeprefix("approvals/").removesuffix(".json")
        if name in self.sent:
            return
        self.sent[name] = []
        fate = self._world.story.nth(QuestionFate).get(
            len(self.sent), QuestionFate(number=0, end="is approved")
        )
        if fate.end != "is not answered":
            look = functools.partial(self._look, name, fate)
            self._world.scheduler.after(fate.delay, functools.partial(self._people.ask, look))

    async def _look(self, name: str, fate: QuestionFate) -> None:
        shown = (await self._people.post("get_approval", b"", approval=name)).document
        deadline = (datetime.fromisoformat(shown["deadline"]) - START).total_seconds()
        if fate.end == "is answered too late":
            later = max(deadline + fate.delay - self._world.scheduler.time(), 0.0)
            answer = functools.partial(self._people.ask, self._answering(name, shown, "approve"))
            self._world.scheduler.after(later, answer)
            return
        verb: Verb = "reject" if fate.end == "is rejected" else "approve"
        is_right = fate.end != "is answered for another hash"
        by = "eve" if fate.end == "is answered by another person" else "ada"
        self._people.ask(self._answering(name, shown, verb, by=by, hash_is_right=is_right))
        if fate.end == "is approved and rejected":
            self._people.ask(self._answering(name, shown, "reject"))

    def _answering(
        self, name: str, shown: Any, verb: Verb, *, by: str = "ada", hash_is_right: bool = True
    ) -> Any:
        """A request that is made until the API answers: it is one answer, sent again."""
        sent: Sent | None = None

        async def answer() -> None:
            nonlocal sent
            if sent is None:
                sent = Sent(verb, self._world.scheduler.time(), by, hash_is_right)
                self.sent[name].append(sent)
            given = {"by": by, "reason": "its numbers"}
            given["hash"] = shown["hash"] if hash_is_right else WRONG_HASH
            found = await self._people.post(verb, json.dumps(given).encode(), approval=name)
            # 403: another person may answer; 409: it is answered, void, over or has changed.
            assert found.status in (200, 403, 409), found
            sent.status = found.status

        return answer


# A poll is every 15 minutes, and the rest is for its steps.
SETTLED_AFTER_SECONDS = 900.0 + 600.0
SERVICES_OF_QUESTIONS: tuple[Service, ...] = (*OF_JOBS, "metrics", "scoring", OUTBOX)


def _seconds(moment: str) -> float:
    return (datetime.fromisoformat(moment) - START).total_seconds()


def _is_agreed(evidence: Evidence, subject: str, rule: Approval, at: float) -> bool:
    """Whether people had approved it, or had been silent for so long that it goes on."""
    name = approval_id(subject, rule.before)
    question = evidence.records("approvals/").get(f"approvals/{name}.json")
    if question is None:
        return False
    sent = evidence.world.approvers.sent[name]
    allowed = [each for each in sent if each.hash_is_right and each.by in (rule.by or [each.by])]
    if any(each.is_accepted and each.verb == "reject" for each in allowed):
        return False
    if any(
        each.verb == "approve" and each.status in (None, 200) and each.at <= at for each in allowed
    ):
        return True
    deadline = _seconds(question["asked_at"]) + rule.hours * HOUR
    return rule.on_silence == "proceed" and at >= deadline


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


def answers_are_bound_and_given_once(evidence: Evidence) -> Iterator[str]:
    """Only an answer in time, to what was shown, of somebody who may, is taken; and only one."""
    for name, sent in evidence.world.approvers.sent.items():
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


# People approve each question that has no other fate.
ASKED: list[Item] = [Deploy(at=100, floor=0.5, changes=("approvals",)), UPLOAD]

FEATURE = Feature(
    changes={
        "approvals": Change(
            weight=0.2,
            sections={
                "approve": [
                    {"before": "registration", "hours": 6},
                    {"before": "rollout", "hours": 2, "on_silence": "proceed"},
                    {"before": "full-traffic", "hours": 4, "by": ["ada"]},
                ]
            },
        )
    },
    invariants=(
        models_are_registered_as_people_agree,
        traffic_moves_as_people_agree,
        answers_are_bound_and_given_once,
        questions_are_settled,
        rejections_hold,
    ),
    mistakes={
        "no answer to a question is refused": Mistake(
            plant=lambda: mock.patch.object(approvals_of_api, "refusal_of", return_value=None),
            found_by=models_are_registered_as_people_agree,
            items=[*ASKED, QuestionFate(number=1, end="is answered for another hash")],
        ),
        "rollouts ask nobody": Mistake(
            plant=lambda: mock.patch.object(approving, "questions_before", return_value=()),
            found_by=traffic_moves_as_people_agree,
            items=ASKED,
            zone="online",
        ),
    },
    kept={
        "a redrive of a run that was terminated while people were asked": quiet_week(
            Deploy(at=100.0, floor=0.8, changes=("approvals",)),
            FIRST,
            QuestionFate(number=1, end="is not answered"),
            Terminate(at=2 * HOUR, orchestrator="retraining"),
            Redrive(at=LATER),
        ),
        "people are asked about a second attempt": quiet_week(
            Deploy(at=100.0, floor=0.8, changes=("approvals",)),
            FIRST,
            JobFate(number=1, end="fails"),
            QuestionFate(number=1, end="is not answered"),
        ),
        "the task hub is away when a run begins to wait for people": quiet_week(
            Deploy(at=100.0, floor=0.8, changes=("approvals",)),
            FIRST,
            OutageAfter(activity="ask_approval", number=1, service="task_hub", seconds=8 * HOUR),
            QuestionFate(number=1, end="is not answered"),
        ),
    },
)
