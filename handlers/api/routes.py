"""The routes of the HTTP API. `handlers.api.endpoint` calls the functions behind them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from handlers.configuration.bulkheads import AZURE_ML, PEEKS, SERVICE_BUS, STORAGE, Bulkhead


@dataclass(frozen=True)
class Route:
    """One route of the API."""

    method: Literal["GET", "POST"]
    path: str
    """Relative to `/api/`."""
    function: str
    """`module.function` below `handlers`; the function's name is also the `operationId`."""
    service: Bulkhead = STORAGE
    """What the function asks: its threads, and how long a caller waits. A coroutine names the
    service of each of its calls itself."""
    signed: bool = False
    """Whether a webhook signature authenticates callers, and not a function key."""

    @property
    def name(self) -> str:
        """The name of the function in Azure, and the `operationId`."""
        return self.function.rpartition(".")[2]

    def load(self) -> Callable[..., Any]:
        """Import and return the function; a late import shortens the cold start."""
        module, _, name = self.function.rpartition(".")
        return getattr(importlib.import_module(f"handlers.{module}"), name)


ROUTES = (
    # With the signature, a function key would only be a second secret to distribute.
    Route("POST", "pipelines/{name}/runs", "triggers.http_api.start_run", signed=True),
    Route("GET", "runs", "api.runs.list_runs"),
    Route("GET", "runs/{run}", "api.runs.get_run"),
    Route("POST", "runs/{run}/cancel", "triggers.http_api.cancel_run"),
    Route("GET", "rollouts", "triggers.rollout_api.list_rollouts"),
    Route("POST", "rollouts", "triggers.rollout_api.start_rollout_of_model", AZURE_ML),
    Route("GET", "rollouts/{rollout}", "triggers.rollout_api.get_rollout"),
    Route("POST", "rollouts/{rollout}/promote", "triggers.rollout_api.promote_rollout"),
    Route("POST", "rollouts/{rollout}/rollback", "triggers.rollout_api.roll_back_rollout"),
    Route("GET", "pipelines", "api.pipelines.list_pipelines"),
    Route("GET", "pipelines/{name}", "api.pipelines.get_pipeline"),
    Route("POST", "pipelines/{name}/pause", "api.pausing.pause_pipeline"),
    Route("POST", "pipelines/{name}/resume", "api.pausing.resume_pipeline"),
    Route("POST", "pipelines/{name}/release", "triggers.release.release"),
    Route("GET", "pipelines/{name}/models", "api.models.list_models", AZURE_ML),
    Route("GET", "pipelines/{name}/models/{version}", "api.models.get_model", AZURE_ML),
    Route(
        "GET", "pipelines/{name}/models/{version}/blobs", "api.models.list_model_blobs", AZURE_ML
    ),
    Route(
        "POST",
        "pipelines/{name}/models/{version}/promote",
        "api.champion_changes.promote_model",
        AZURE_ML,
    ),
    Route(
        "POST",
        "pipelines/{name}/models/{version}/rollback",
        "api.champion_changes.roll_back_model",
        AZURE_ML,
    ),
    Route("GET", "dead-letters", "api.dead_letters.list_dead_letters", PEEKS),
    Route("GET", "dead-letters/{letter}", "api.dead_letters.get_dead_letter", PEEKS),
    Route("POST", "dead-letters/redrive", "api.dead_letters.redrive_dead_letters", SERVICE_BUS),
    Route("POST", "dead-letters/discard", "api.dead_letters.discard_dead_letters", SERVICE_BUS),
    Route("POST", "redrive", "api.dead_letters.redrive", SERVICE_BUS),
    Route("GET", "explain", "triggers.explain.explain", AZURE_ML),
    Route("GET", "queues", "api.queues.list_queues"),
    Route("GET", "alarms", "api.alarms.list_alarms"),
    Route("GET", "actions", "api.actions.list_actions"),
    Route("GET", "openapi.json", "api.openapi.openapi"),
)
