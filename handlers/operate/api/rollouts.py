"""/api/rollouts: list rollouts, start one, show one, promote it or roll it back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.models import find_model
from handlers.operate.api.requests import (
    Accepted,
    Document,
    Parameters,
    Problem,
    find_pipeline,
    next_url,
)
from handlers.platform.bulkheads import AZURE_ML, STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import exists, is_broken, is_live, parsed, wake_up
from handlers.platform.rollout_index import list_rollouts as read_page
from handlers.platform.rollout_index import recorded_end
from handlers.rollout.observing import record_decision
from handlers.rollout.requests import request_rollout
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.outcomes import rule_of_rollout
from orchestrations.contracts.rollouts import Decision, RolloutStatus, Verb
from orchestrations.rollout.decisions import step_to_decide
from orchestrations.rollout.rollout import rollout as rollout_orchestrator

if TYPE_CHECKING:  # in version 2 of the SDK it is in another module
    from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

_INSTANCE = re.compile(r"rollout-[A-Za-z0-9][A-Za-z0-9_-]{0,240}")


class RolloutDetail(RolloutStatus):
    """Answer of `GET /api/rollouts/{rollout}`."""

    broken: bool
    """Whether its instance failed or was terminated, so that it will not continue."""


class RolloutSummary(RolloutDetail):
    """A rollout in a list."""

    created_at: datetime


class RolloutList(Document):
    """Answer of `GET /api/rollouts`, newest first."""

    rollouts: list[RolloutSummary]
    next: str | None
    """Path and query of the next page; null on the last page."""


class DecideRollout(Asked):
    """Body of POST /api/rollouts/{rollout}/promote and …/rollback; every key is optional."""

    reason: str = Field(default="no reason was given", min_length=1, max_length=300)


class StartRolloutOfModel(Asked):
    """Body of POST /api/rollouts."""

    pipeline: str = Field(min_length=1, max_length=40)
    version: str = Field(pattern=r"^[1-9]\d{0,8}$")
    """A version of the pipeline's model."""
    at_once: bool = False
    """Whether the model gets all traffic after its smoke test, without steps and guards."""


class RolloutFilter(Parameters):
    """Parameters of GET /api/rollouts."""

    pipeline: Annotated[str | None, Field(max_length=40)] = None
    after: Annotated[str | None, Field(pattern=r"^\d{13}_rollout-[A-Za-z0-9_-]{1,241}$")] = None
    limit: Annotated[int, Field(ge=1, le=50)] = 20


async def list_rollouts(
    clients: Clients, starter: DurableOrchestrationClient, query: RolloutFilter
) -> RolloutList:
    """List the rollouts, newest first."""
    page = await STORAGE.ask(
        read_page, clients, pipeline=query.pipeline, after=query.after, limit=query.limit
    )
    return RolloutList(
        rollouts=await asyncio.gather(
            *(_summary(clients, starter, each) for each in page.rollouts)
        ),
        next=next_url("/api/rollouts", query, page.following),
    )


async def _summary(
    clients: Clients, starter: DurableOrchestrationClient, indexed: RolloutStatus
) -> RolloutSummary:
    """A rollout with its current state; without an instance, the request and its recorded end."""
    instance = await starter.get_status(indexed.id)
    status, is_over = indexed, False
    if exists(instance):
        is_over = is_broken(instance)
        shown = parsed(instance.custom_status)
        if shown:
            now = RolloutStatus.from_dict(shown)
            status = now.model_copy(update={"rolls_back": indexed.rolls_back})
    else:
        end = await STORAGE.ask(recorded_end, clients, indexed.id)
        is_over = end is None
        status = indexed.model_copy(update={"state": end or indexed.state})
    return RolloutSummary(**dict(status), broken=is_over, created_at=indexed.since)


async def start_rollout_of_model(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    request: StartRolloutOfModel,
) -> Accepted:
    """Roll a version of a pipeline's model out to the pipeline's endpoint.

    A rollout of another version that is not live yet is superseded. A repeated request gets the
    rollout that is under way; after its end, there is a new one.
    """
    pipeline = find_pipeline(pipelines, request.pipeline)
    if pipeline.deploy is None:
        raise Problem(
            409, "no-endpoint", f"pipeline {request.pipeline} has no deploy in its pipeline.yml"
        )
    model = await AZURE_ML.ask(find_model, clients, pipeline, request.version)
    rollout = await request_rollout(clients, starter, pipeline, model, at_once=request.at_once)
    on = f"model {pipeline.model.name}:{request.version}"
    await STORAGE.ask(keep_action, clients, "roll out", on, request, outcome=rollout)
    return Accepted(id=rollout, status_url=f"/api/rollouts/{rollout}")


async def get_rollout(starter: DurableOrchestrationClient, *, rollout: str) -> RolloutDetail:
    """Return the state of one rollout: its step, traffic, and measurements."""
    instance = await _find(starter, rollout)
    return RolloutDetail(**dict(_status(instance)), broken=is_broken(instance))


async def promote_rollout(
    clients: Clients, starter: DurableOrchestrationClient, request: DecideRollout, *, rollout: str
) -> Accepted:
    """End the baking time of the current step, so that the next step begins.

    If the rollout is testing, leave out the smoke test. If it is live, end the time for which the
    previous deployments are kept.
    """
    instance = await _find_live(starter, rollout)
    state = _status(instance).state
    if not rule_of_rollout(state).can_be_promoted:
        raise Problem(
            409, "rollout-not-baking", f"rollout {rollout} is {state}: wait until it is tested"
        )
    return await _decide(clients, starter, instance, "promote", request)


async def roll_back_rollout(
    clients: Clients, starter: DurableOrchestrationClient, request: DecideRollout, *, rollout: str
) -> Accepted:
    """Restore the traffic from before a rollout, in any state before its end."""
    instance = await _find_live(starter, rollout)
    return await _decide(clients, starter, instance, "rollback", request)


async def _decide(
    clients: Clients,
    starter: DurableOrchestrationClient,
    instance: DurableOrchestrationStatus,
    verb: Verb,
    request: DecideRollout,
) -> Accepted:
    """Record a decision, and wake the rollout up."""
    status = _status(instance)
    step = step_to_decide(status.state, status.step)
    decision = Decision(verb=verb, by=request.by, reason=request.reason, step=step)
    await STORAGE.ask(record_decision, clients, status.id, decision)
    on = f"rollout {status.id}"
    await STORAGE.ask(keep_action, clients, verb, on, request, outcome="requested")
    await wake_up(starter, status.id)
    return Accepted(id=status.id, status_url=f"/api/rollouts/{status.id}")


async def _find_live(
    starter: DurableOrchestrationClient, rollout: str
) -> DurableOrchestrationStatus:
    instance = await _find(starter, rollout)
    if not is_live(instance):
        state = _status(instance).state
        raise Problem(409, "rollout-has-ended", f"rollout {rollout} has ended as {state}")
    return instance


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
