"""POST /api/pipelines/{name}/models/{version}/promote and …/rollback: people change the champion.

If the pipeline has an endpoint, a rollout moves its traffic, and completes the change: it is
requested first, so that a process that dies in between leaves nothing half done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.model_documents import ChampionChanged
from handlers.operate.api.models import azure_ml_asked
from handlers.operate.api.requests import Problem
from handlers.platform.bulkheads import AZURE_ML, STORAGE
from handlers.platform.clients import Clients
from handlers.rollout.requests import Redirection, redirect
from handlers.training.champions import (
    active_versions,
    change_champion,
    choose_champion,
    find_active,
    find_rollback,
    rolled_back_at,
)
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.rollouts import ChampionChange, ChangeChampion, Verb
from orchestrations.errors import RolloutImpossible

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel


class ChangeOfChampion(Asked):
    """Body of a promotion or a rollback; the reason is required."""

    reason: str = Field(min_length=1, max_length=500)


@dataclass(frozen=True)
class _Plan:
    """What a change does; read before it."""

    target: AzureMLModel
    """The version that is to be in service."""
    is_repeated: bool
    """Whether the change was asked for before."""
    champion: str | None
    """The champion before the change."""


async def promote_model(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    request: ChangeOfChampion,
    *,
    version: str,
    now: datetime,
) -> ChampionChanged:
    """Put a version in service: it becomes the champion that later runs are compared with.

    If the pipeline has an endpoint, the version is rolled out to it, step by step.
    """
    return await _change(clients, starter, pipeline, "promote", request, version=version, now=now)


async def roll_back_model(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    request: ChangeOfChampion,
    *,
    version: str,
    now: datetime,
) -> ChampionChanged:
    """Take the champion out of service, and put the version before it in service again.

    If the pipeline has an endpoint, its traffic moves to that version at once.
    """
    return await _change(clients, starter, pipeline, "rollback", request, version=version, now=now)


async def _change(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    verb: Verb,
    body: ChangeOfChampion,
    *,
    version: str,
    now: datetime,
) -> ChampionChanged:
    change = ChampionChange(verb=verb, version=version, at=now, by=body.by, reason=body.reason)
    with azure_ml_asked():
        plan = await AZURE_ML.ask(_plan, clients, pipeline, change)
        redirected = await redirect(
            clients, starter, pipeline, plan.target, change, is_repeated=plan.is_repeated
        )
        champion = str(plan.target.version)
        request = ChangeChampion(pipeline=pipeline, change=change, serving=champion)
        try:
            await AZURE_ML.ask(change_champion, clients, request)
        except RolloutImpossible as error:  # another person was faster; the rollout ends, too
            raise Problem(409, "not-the-champion", str(error), where="version") from None
    message = _sentence(redirected, champion, verb)
    changed = champion != plan.champion
    outcome = f"version {champion} is in service{'' if changed else ' already'}. {message}"
    on = f"model {pipeline.model.name}:{version}"
    await STORAGE.ask(keep_action, clients, verb, on, body, outcome=outcome)
    rollout = redirected.rollout
    return ChampionChanged(
        champion=champion,
        changed=changed,
        endpoint=redirected.effect,
        message=message,
        rollout=rollout,
        status_url=None if rollout is None else f"/api/rollouts/{rollout}",
    )


def _plan(clients: Clients, pipeline: Pipeline, change: ChampionChange) -> _Plan:
    """Plan a change.

    Raises:
        ChampionRefused: it is not possible.
    """
    models = active_versions(clients, pipeline.model.name)
    champion = choose_champion(models)
    if change.verb == "promote":
        target = find_active(clients, pipeline, models, change.version)
        is_repeated = champion is target
    else:
        model, target = find_rollback(clients, pipeline, models, change.version)
        is_repeated = rolled_back_at(model) is not None
    return _Plan(target, is_repeated, None if champion is None else str(champion.version))


def _sentence(redirected: Redirection, champion: str, verb: Verb) -> str:
    """What happens at the endpoint."""
    how = "at once" if verb == "rollback" else "in steps"
    match redirected.effect:
        case "none":
            return "Landfall manages no endpoint for this pipeline: no traffic was moved."
        case "serving":
            return f"Version {champion} has all traffic of the endpoint already."
        case "kept-deployment":
            return (
                f"The deployment of version {champion} still exists and gets the traffic {how}: "
                f"see {redirected.rollout}."
            )
        case "new-deployment":
            return (
                f"Version {champion} has no deployment any more: it is deployed again, and gets "
                f"the traffic {how} when its smoke test has passed: see {redirected.rollout}."
            )
