"""Requests for rollouts, from runs and from people, and their queue.

A request is a message, because an activity has no durable client; the queue keeps it until the
rollout has begun. A person's request is so kept whole or not at all; the rollout does the rest.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from azure.durable_functions import DurableOrchestrationClient

from handlers.notify.dead_letter_queue import reject_message
from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.bulkheads import AZURE_ML, BACKGROUND, SERVICE_BUS, STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import is_live, parsed, start_once, wake_up
from handlers.platform.message_outbox import send_in_background
from handlers.platform.rollout_index import index_rollout
from handlers.platform.service_bus import ROLLOUTS, Message, fit_message_id, parse_body, traced
from handlers.platform.spans import use_parent_span
from handlers.platform.tags import reference_of, tags_of
from handlers.rollout.deployments import DeploymentChoice, choose_deployment
from handlers.rollout.endpoint_claims import holder_of, newest_rollout, register
from handlers.rollout.endpoints import read_traffic
from handlers.rollout.observing import record_decision
from orchestrations.configuration.deploy import Deploy
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Done
from orchestrations.contracts.outcomes import rule_of_rollout
from orchestrations.contracts.rollouts import (
    ChampionChange,
    Decision,
    EndpointEffect,
    RolloutInput,
    RolloutRequest,
    RolloutStatus,
    StartRollout,
)
from orchestrations.errors import InvalidRequest
from orchestrations.names import deployment_name, is_rollout_of, rollout_id
from orchestrations.platform.activities import describe
from orchestrations.rollout.decisions import WHOLE_PERCENT
from orchestrations.rollout.rollout import rollout

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel

logger = logging.getLogger("landfall")


@activity
def start_rollout(clients: Clients, request: StartRollout) -> Done:
    """Send the request to `rollouts`; the queue or `handle_rollout` drops a duplicate."""
    message = Message(
        message_id=fit_message_id(request.rollout),
        subject=request.rollout,
        properties={"run": request.request.run, **traced(request.request.traceparent)},
        body=request.request.model_dump_json(),
    )
    send_in_background(clients, ROLLOUTS, message)
    return Done()


async def handle_rollout(
    clients: Clients, starter: DurableOrchestrationClient, body: bytes | str, *, now: datetime
) -> str | None:
    """Start the rollout of a message, and return its id.

    A rollout that a person started is the newest one of its endpoint from here on. If it belongs to
    the rollback of a model whose rollout holds the endpoint, that rollout is rolled back. The
    rollout that holds the endpoint is woken up to see it. A malformed message is dead-lettered
    (None). If the process dies before the message is completed, it is delivered to this function
    again.
    """
    try:
        request = parse_body(RolloutRequest, body, queue=ROLLOUTS)
    except InvalidRequest as error:
        logger.warning("message rejected: %s", error)
        await SERVICE_BUS.ask(reject_message, clients, body, describe(error))
        return None
    deploy = request.pipeline.deploy
    assert deploy is not None, "only a pipeline with deploy has rollouts"
    instance = rollout_id(deploy.endpoint, request.model.version, request.attempt)
    change = request.champion
    requested = RolloutStatus(
        id=instance,
        pipeline=request.pipeline.name,
        run=request.run,
        model=request.model,
        endpoint=deploy.endpoint,
        deployment=request.deployment or deployment_name(request.model.version),
        state="waiting",
        since=now,
        step=0,
        steps=len(deploy.steps),
        at_once=request.at_once,
        rolls_back=change.version if change is not None and change.verb == "rollback" else None,
    )
    await BACKGROUND.ask(index_rollout, clients, requested)
    if request.attempt:
        await BACKGROUND.ask(_register, clients, request, instance)
    given = RolloutInput(request=request).to_dict()
    with use_parent_span(request.traceparent):
        await start_once(starter, rollout.__name__, instance, given)
    holder = await BACKGROUND.ask(holder_of, clients, deploy.endpoint)
    if holder not in (None, instance):
        await wake_up(starter, holder)
    return instance


def _register(clients: Clients, request: RolloutRequest, rollout: str) -> None:
    """Record, once, what a person's rollout does to the other rollouts of its endpoint.

    The rollback of the holder is recorded first. Otherwise this rollout, as the newest one, would
    end the holder without a rollback if its model is live.
    """
    deploy, change = request.pipeline.deploy, request.champion
    assert deploy is not None, "see handle_rollout"
    _, registered = newest_rollout(clients, deploy.endpoint)
    if registered >= request.attempt:
        return  # the holder may be a later rollout by now, which the person did not mean
    holder = holder_of(clients, deploy.endpoint)
    if (
        holder is not None
        and change is not None
        and change.verb == "rollback"
        and is_rollout_of(holder, deploy.endpoint, change.version)
    ):
        decision = Decision(verb="rollback", by=change.by, reason=change.reason, step=0)
        record_decision(clients, holder, decision)
    register(
        clients,
        deploy.endpoint,
        rollout,
        version=int(request.model.version),
        attempt=request.attempt,
    )


@dataclass(frozen=True)
class Redirection:
    """How an endpoint follows a change of the champion."""

    effect: EndpointEffect
    rollout: str | None = None
    """The rollout that changes the traffic."""


async def request_rollout(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    model: AzureMLModel,
    *,
    at_once: bool,
    change: ChampionChange | None = None,
    choice: DeploymentChoice | None = None,
) -> str:
    """Request a rollout, and return its id. A repeated request gets the rollout that is under way.

    Args:
        clients: the app's.
        starter: the durable client.
        pipeline: it has `deploy`.
        model: a version of the pipeline's model.
        at_once: whether the model gets all traffic after its smoke test, without steps.
        change: the change of the champion that the rollout completes.
        choice: the deployment, if the caller has chosen it. None: one with the current code.
    """
    deploy = _deploy_of(pipeline)
    wanted = reference_of(model)
    version = wanted.version
    if choice is None:
        choice = await AZURE_ML.ask(choose_deployment, clients, pipeline, wanted, any_code=False)
    newest, requests = await STORAGE.ask(newest_rollout, clients, deploy.endpoint)
    if (
        newest is not None
        and is_rollout_of(newest, deploy.endpoint, version)
        and await _does_it(starter, newest, choice.name, at_once=at_once)
    ):
        return newest
    request = RolloutRequest(
        pipeline=pipeline,
        model=wanted,
        run=tags_of(model).get(tags.RUN, ""),
        attempt=requests + 1,
        at_once=at_once,
        champion=change,
        deployment=None if choice.name == deployment_name(version) else choice.name,
    )
    rollout = rollout_id(deploy.endpoint, version, request.attempt)
    message = StartRollout(rollout=rollout, request=request)
    await STORAGE.ask(start_rollout, clients, message)
    return rollout


async def redirect(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    model: AzureMLModel,
    change: ChampionChange,
    *,
    is_repeated: bool,
) -> Redirection:
    """Let the endpoint follow a change of the champion, and complete the change.

    A promoted model is rolled out in steps, as a new one is; a rollback has its effect at once.

    Args:
        clients: the app's.
        starter: the durable client.
        pipeline: of the model.
        model: the version that is to serve.
        change: the change of the champion.
        is_repeated: whether the champion was changed before. If the version then has all traffic,
            nothing is done.
    """
    if pipeline.deploy is None:
        return Redirection("none")
    at_once = change.verb == "rollback"
    choice = await AZURE_ML.ask(
        choose_deployment, clients, pipeline, reference_of(model), any_code=at_once
    )
    effect = await AZURE_ML.ask(_effect, clients, pipeline.deploy, choice, is_repeated=is_repeated)
    if effect == "serving":
        return Redirection("serving")
    rollout = await request_rollout(
        clients, starter, pipeline, model, at_once=at_once, change=change, choice=choice
    )
    return Redirection(effect, rollout)


def _effect(
    clients: Clients, deploy: Deploy, choice: DeploymentChoice, *, is_repeated: bool
) -> EndpointEffect:
    if is_repeated and holder_of(clients, deploy.endpoint) is None:
        now = read_traffic(clients, deploy.kind, deploy.endpoint)
        if any(now.traffic == {name: WHOLE_PERCENT} for name in choice.ready):
            return "serving"
    return "kept-deployment" if choice.name in choice.ready else "new-deployment"


async def _does_it(
    starter: DurableOrchestrationClient, rollout: str, deployment: str, *, at_once: bool
) -> bool:
    """Whether an active rollout already deploys this, at the requested speed."""
    instance = await starter.get_status(rollout)
    shown = parsed(instance.custom_status)
    if not is_live(instance) or not shown:
        return is_live(instance)
    status = RolloutStatus.from_dict(shown)
    phase = rule_of_rollout(status.state).phase
    if phase == "restoring" or status.deployment != deployment:
        return False
    return phase == "live" or status.at_once == at_once


def _deploy_of(pipeline: Pipeline) -> Deploy:
    assert pipeline.deploy is not None, "callers check it"
    return pipeline.deploy
