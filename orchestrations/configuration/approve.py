"""The section `approve` of `pipeline.yml`: before what people are asked about a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrations.configuration.section import Section

ROLE = "role:"
"""Before the name of an app role, among those who may answer."""
PROMOTION = "promotion"
ApprovedStep = Literal["registration", "rollout", "full-traffic", "promotion"]


class Approval(Section):
    """A question to people about a model, before it goes on."""

    before: ApprovedStep
    """Before what they are asked: the model's registration, its first live traffic, or the last
    step of its rollout. The last two need `deploy`, and `full-traffic` an online endpoint.
    `promotion` is the question of a workspace in `workspaces.yml`."""
    hours: float = Field(default=24, gt=0, le=30 * 24)
    """How long an answer is waited for."""
    on_silence: Literal["reject", "proceed"] = "reject"
    """What happens if nobody answers in this time."""
    by: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default=[], max_length=20)
    """The names of the people who may answer, as the API knows them, or `role:<app role>` with
    `API_SIGN_IN=entra`. Empty: everybody who may call the API."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _each_once(questions: list[Approval]) -> list[Approval]:
    steps = [each.before for each in questions]
    if PROMOTION in steps:
        raise ValueError("a promotion is approved as workspaces.yml says: declare `approve` there")
    if len(set(steps)) < len(steps):
        raise ValueError("two questions are before the same step")
    return questions


Approvals = Annotated[
    list[Approval],
    BeforeValidator(_listed),
    AfterValidator(_each_once),
    # Left out where there is none, so that the histories of other pipelines do not change.
    Field(default=[], max_length=3, exclude_if=lambda it: not it),
]


def question_before(questions: Sequence[Approval], step: ApprovedStep) -> Approval | None:
    """The question before a step, if the pipeline asks one."""
    return next((each for each in questions if each.before == step), None)
