"""GET /api/rollouts, one of them, and what people decide about it: promote and rollback."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated

from azure.durable_functions import DurableOrchestrationClient
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from handlers.api.actions import caller, keep_action
from handlers.api.documents.rollouts import RolloutDetail, RolloutList, RolloutSummary
from handlers.api.parameters import Parameters, next_url, parse_parameters
from handlers.configuration.clients import Clients
from handlers.durable.instances import exists, is_broken, is_live, wake_up
from handlers.durable.status_documents import parsed
from handlers.rollouts.observing import record_decision
from handlers.rollouts.rollout_index import list_rollouts as read_page
from handlers.rollouts.rollout_index import recorded_end
from handlers.triggers.problem_details import Answer, Problem
from orchestrations.contracts.rollouts import Decision, RolloutStatus, Verb
from orchestrations.rollout import rollout as rollout_orchestrator

BODY_LIMIT_BYTES = 20_000
_INSTANCE = re.compile(r"rollout-[A-Za-z0-9][A-Za-z0-9_-]{0,240}")


class DecideRollout(BaseModel):
    """Body of POST /api/rollouts/{id}/promote and …/rollback; all of it may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True)

    by: str = Field(default="a caller of the HTTP API", max_length=200)
    reason: str = Field(default="no reason was given", max_length=300)


class RolloutFilter(Parameters):
    """Parameters of GET /api/rollouts."""

    pipeline: Annotated[str | None, Field(max_length=40)] = None
    after: Annotated[str | None, Field(pattern=r"^\d{13}_rollout-[A-Za-z0-9_-]{1,241}$")] = None
    limit: Annotated[int, Field(ge=1, le=50)] = 20


async def list_rollouts(
    clients: Clients, starter: DurableOrchestrationClient, parameters: Mapping[str, str]
) -> Answer:
    """A page of rollouts, newest first."""
    try:
        asked = parse_parameters(RolloutFilter, parameters)
    except Problem as problem:
        return problem.to_answer()
    page = await asyncio.to_thread(
        read_page, clients, pipeline=asked.pipeline, after=asked.after, limit=asked.limit
    )
    listed = RolloutList(
        rollouts=await asyncio.gather(
            *(_summary(clients, starter, each) for each in page.rollouts)
        ),
        next=next_url("/api/rollouts", asked, page.following),
    )
    return Answer(200, listed.model_dump(mode="json"))


async def _summary(
    clients: Clients, starter: DurableOrchestrationClient, asked: RolloutStatus
) -> RolloutSummary:
    """A rollout as it is now; as it was asked for, and as it ended, where its instance is gone."""
    instance = await starter.get_status(asked.id)
    status, is_over = asked, False
    if exists(instance):
        is_over = is_broken(instance)
        shown = parsed(instance.custom_status)
        status = RolloutStatus.from_dict(shown) if shown else asked
    else:
        end = await asyncio.to_thread(recorded_end, clients, asked.id)
        is_over = end is None
        status = asked.model_copy(update={"state": end or asked.state})
    return RolloutSummary(**dict(status), broken=is_over, created_at=asked.since)


async def get_rollout(starter: DurableOrchestrationClient, *, rollout: str) -> Answer:
    """The status of a rollout; one whose instance failed or was terminated has `broken`: true."""
    try:
        instance = await _find(starter, rollout)
    except Problem as problem:
        return problem.to_answer()
    detail = RolloutDetail(**dict(_status(instance)), broken=is_broken(instance))
    return Answer(200, detail.to_dict())


async def decide_rollout(
    clients: Clients,
    starter: DurableOrchestrationClient,
    verb: Verb,
    *,
    rollout: str,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> Answer:
    """Put a decision on record, and wake the rollout up.

    A promotion ends the step that the rollout bakes in now, or, where it is live, the time of the
    previous deployments. A rollback holds in every state before the end.
    """
    try:
        asked = _parse(body)
        instance = await _find(starter, rollout)
        status = _status(instance)
        if not is_live(instance):
            raise Problem(  # noqa: TRY301 - one exit for all problems
                409, "rollout-has-ended", f"rollout {rollout} has ended as {status.state}"
            )
        if verb == "promote" and status.state not in ("baking", "live"):
            raise Problem(  # noqa: TRY301 - the same
                409,
                "rollout-not-baking",
                f"rollout {rollout} is {status.state}: wait until it bakes",
            )
    except Problem as problem:
        return problem.to_answer()
    by = caller(headers, asked.by)
    decision = Decision(verb=verb, by=by, reason=asked.reason, step=status.step)
    await asyncio.to_thread(record_decision, clients, rollout, decision)
    await asyncio.to_thread(
        keep_action,
        clients,
        verb,
        f"rollout {rollout}",
        by=by,
        reason=asked.reason,
        outcome="requested",
    )
    await wake_up(starter, rollout)
    url = f"/api/rollouts/{rollout}"
    return Answer(202, {"id": rollout, "status_url": url}, headers={"Location": url})


def _status(instance: DurableOrchestrationStatus) -> RolloutStatus:
    shown = parsed(instance.custom_status)
    if not shown:
        raise Problem(
            409, "rollout-not-begun", f"rollout {instance.instance_id} has not begun: ask again"
        )
    return RolloutStatus.from_dict(shown)


async def _find(starter: DurableOrchestrationClient, rollout: str) -> DurableOrchestrationStatus:
    if _INSTANCE.fullmatch(rollout) is not None:
        status = await starter.get_status(rollout)
        if exists(status) and status.name == rollout_orchestrator.__name__:
            _status(status)
            return status
    raise Problem(404, "unknown-rollout", f"there is no rollout {rollout!r}")


def _parse(body: bytes) -> DecideRollout:
    if len(body) > BODY_LIMIT_BYTES:
        raise Problem(413, "invalid-request", f"a body of {len(body)} bytes is too long")
    try:
        return DecideRollout.model_validate_json(body.strip() or b"{}")
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Problem(400, "invalid-request", f"{where}: {first['msg']}", where=where) from None
