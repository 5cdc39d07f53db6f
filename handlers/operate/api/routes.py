"""The routes of the HTTP API. `handlers.operate.api.endpoint` calls the functions behind them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from handlers.platform.bulkheads import AZURE_ML, PEEKS, SERVICE_BUS, STORAGE, Bulkhead


@dataclass(frozen=True)
class Route:
    """One route of the API."""

    method: Literal["GET", "POST"]
    path: str
    """Relative to `/api/`."""
    function: str
    """`module.function` of this package; the function's name is also the `operationId`."""
    service: Bulkhead = STORAGE
    """What the function asks: its threads, and how long a caller waits. A coroutine names the
    service of each of its calls itself."""
    signed: bool = False
    """Whether a signature of the request or the link authenticates callers, and no function key."""

    @property
    def name(self) -> str:
        """The name of the function in Azure, and the `operationId`."""
        return self.function.rpartition(".")[2]

    def load(self) -> Callable[..., Any]:
        """Import and return the function; a late import shortens the cold start."""
        module, _, name = self.function.rpartition(".")
        return getattr(importlib.import_module(f"handlers.operate.api.{module}"), name)


ROUTES = (
    # With the signature, a function key would only be a second secret to distribute.
    Route("POST", "pipelines/{name}/runs", "run_requests.start_run", signed=True),
    Route("POST", "pipelines/{name}/train", "run_requests.train_pipeline"),
    Route("GET", "runs", "runs.list_runs"),
    Route("GET", "runs/{run}", "runs.get_run"),
    Route("GET", "runs/{run}/report", "runs.get_report"),
    Route("GET", "runs/{run}/logs", "run_logs.get_logs", AZURE_ML),
    Route("POST", "runs/{run}/cancel", "run_requests.cancel_run"),
    Route("GET", "rollouts", "rollouts.list_rollouts"),
    Route("POST", "rollouts", "rollouts.start_rollout_of_model", AZURE_ML),
    Route("GET", "rollouts/{rollout}", "rollouts.get_rollout"),
    Route("POST", "rollouts/{rollout}/promote", "rollouts.promote_rollout"),
    Route("POST", "rollouts/{rollout}/rollback", "rollouts.roll_back_rollout"),
    Route("GET", "approvals", "approvals.list_approvals"),
    Route("GET", "approvals/{approval}", "approvals.get_approval"),
    Route("POST", "approvals/{approval}/approve", "approvals.approve"),
    Route("POST", "approvals/{approval}/reject", "approvals.reject"),
    Route("GET", "approval-links/{token}", "approvals.get_linked_approval", signed=True),
    Route("POST", "approval-links/{token}/{verb}", "approvals.answer_linked_approval", signed=True),
    Route("GET", "pipelines", "pipelines.list_pipelines"),
    Route("GET", "pipelines/{name}", "pipelines.get_pipeline"),
    Route("POST", "pipelines/{name}/pause", "pausing.pause_pipeline"),
    Route("POST", "pipelines/{name}/resume", "pausing.resume_pipeline"),
    Route("POST", "pipelines/{name}/release", "pausing.release"),
    Route("POST", "pipelines/{name}/what-if", "what_if.what_if"),
    Route("GET", "pipelines/{name}/picture", "picture.get_picture", AZURE_ML),
    Route("GET", "picture-links/{token}", "picture.get_linked_picture", AZURE_ML, signed=True),
    Route("GET", "pipelines/{name}/data/{version}", "differences.get_difference"),
    Route("POST", "forgotten", "forgotten.forget"),
    Route("GET", "forgotten", "forgotten.list_forgotten"),
    Route("GET", "forgotten/{request}", "forgotten.get_forgotten", AZURE_ML),
    Route("GET", "pipelines/{name}/models", "models.list_models", AZURE_ML),
    Route("GET", "pipelines/{name}/models/{version}", "models.get_model", AZURE_ML),
    Route("GET", "pipelines/{name}/models/{version}/card", "model_card.get_model_card", AZURE_ML),
    Route("GET", "pipelines/{name}/models/{version}/blobs", "models.list_model_blobs", AZURE_ML),
    Route(
        "POST", "pipelines/{name}/models/{version}/promotions", "promotions.promote_to_workspace"
    ),
    Route("GET", "pipelines/{name}/models/{version}/promotions", "promotions.list_promotions"),
    Route(
        "POST",
        "pipelines/{name}/models/{version}/promotions/cancel",
        "promotions.cancel_promotion",
    ),
    Route(
        "POST",
        "pipelines/{name}/models/{version}/promote",
        "champion_changes.promote_model",
        AZURE_ML,
    ),
    Route(
        "POST",
        "pipelines/{name}/models/{version}/rollback",
        "champion_changes.roll_back_model",
        AZURE_ML,
    ),
    Route("POST", "pipelines/{name}/models/{version}/reproduce", "reproducing.reproduce_model"),
    Route("GET", "dead-letters", "dead_letters.list_dead_letters", PEEKS),
    Route("GET", "dead-letters/{letter}", "dead_letters.get_dead_letter", PEEKS),
    Route("POST", "dead-letters/redrive", "dead_letters.redrive_dead_letters", SERVICE_BUS),
    Route("POST", "dead-letters/discard", "dead_letters.discard_dead_letters", SERVICE_BUS),
    Route("POST", "redrive", "dead_letters.redrive", SERVICE_BUS),
    Route("GET", "explain", "explain.explain", AZURE_ML),
    Route("GET", "queues", "queues.list_queues"),
    Route("GET", "alarms", "alarms.list_alarms"),
    Route("GET", "actions", "actions.list_actions"),
    Route("GET", "openapi.json", "openapi.openapi"),
)
