"""People start rollouts: of any version, and to complete a promotion or a rollback of a model.

Only a message is sent here, so that a request is kept whole or not at all; the rollout does the
rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from azure.durable_functions import DurableOrchestrationClient

from handlers.platform import tags
from handlers.platform.bulkheads import AZURE_ML, STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import is_live, parsed
from handlers.platform.tags import tags_of
from handlers.rollout.deployments import is_deployed
from handlers.rollout.endpoint_claims import holder_of, newest_rollout
from handlers.rollout.endpoints import read_traffic
from handlers.rollout.starting import start_rollout
from orchestrations.configuration.deploy import Deploy
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.models import Model
from orchestrations.contracts.rollouts import (
    ChampionChange,
    EndpointEffect,
    RolloutRequest,
    RolloutStatus,
    StartRollout,
)
from orchestrations.names import deployment_name, is_rollout_of, rollout_id
from orchestrations.rollout.decisions import WHOLE_PERCENT

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel


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
) -> str:
    """Request a rollout, and return its id. A repeated request gets the rollout that is under way.

    Args:
        clients: the app's.
        starter: the durable client.
        pipeline: it has `deploy`.
        model: a version that Landfall registered.
        at_once: whether the model gets all traffic after its smoke test, without steps.
        change: the change of the champion that the rollout completes.
    """
    deploy = _deploy_of(pipeline)
    version = str(model.version)
    newest, requests = await STORAGE.ask(newest_rollout, clients, deploy.endpoint)
    if (
        newest is not None
        and is_rollout_of(newest, deploy.endpoint, version)
        and await _does_it(starter, newest, at_once=at_once)
    ):
        return newest
    request = RolloutRequest(
        pipeline=pipeline,
        model=Model(name=str(model.name), version=version, path=str(model.path)),
        run=tags_of(model).get(tags.RUN, ""),
        attempt=requests + 1,
        at_once=at_once,
        champion=change,
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
    effect = await AZURE_ML.ask(_effect, clients, pipeline.deploy, model, is_repeated=is_repeated)
    if effect == "serving":
        return Redirection("serving")
    at_once = change.verb == "rollback"
    rollout = await request_rollout(
        clients, starter, pipeline, model, at_once=at_once, change=change
    )
    return Redirection(effect, rollout)


def _effect(
    clients: Clients, deploy: Deploy, model: AzureMLModel, *, is_repeated: bool
) -> EndpointEffect:
    version = str(model.version)
    if is_repeated and holder_of(clients, deploy.endpoint) is None:
        now = read_traffic(clients, deploy.kind, deploy.endpoint)
        if now.traffic == {deployment_name(version): WHOLE_PERCENT}:
            return "serving"
    wanted = Model(name=str(model.name), version=version, path=str(model.path))
    return "kept-deployment" if is_deployed(clients, deploy, wanted) else "new-deployment"


async def _does_it(starter: DurableOrchestrationClient, rollout: str, *, at_once: bool) -> bool:
    """Whether a rollout of the version is under way, and as fast as it is asked for."""
    instance = await starter.get_status(rollout)
    shown = parsed(instance.custom_status)
    if not is_live(instance) or not shown:
        return is_live(instance)
    status = RolloutStatus.from_dict(shown)
    if status.state == "rolling_back":
        return False
    return status.state == "live" or status.at_once == at_once


def _deploy_of(pipeline: Pipeline) -> Deploy:
    assert pipeline.deploy is not None, "callers check it"
    return pipeline.deploy
