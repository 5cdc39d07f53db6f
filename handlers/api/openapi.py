"""GET /api/openapi.json: the HTTP API, described by the models that parse and answer it.

https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, RootModel
from pydantic.json_schema import models_json_schema

from handlers.api.actions import ActionFilter
from handlers.api.dead_letters import DiscardLetters, LetterFilter, RedriveLetters
from handlers.api.documents import (
    actions,
    alarms,
    base,
    blobs,
    dead_letters,
    models,
    pipelines,
    queues,
    rollouts,
    runs,
)
from handlers.api.models import BlobFilter, ChangeChampion, ModelFilter
from handlers.api.parameters import NoParameters, Parameters
from handlers.api.pausing import PausePipeline, ResumePipeline
from handlers.api.runs import RunFilter
from handlers.triggers.explain import ExplainQuestion
from handlers.triggers.http_api import CancelRun, Redrive, StartRun
from handlers.triggers.problem_details import JSON_TYPE, PROBLEM_TYPE, Answer
from handlers.triggers.release import ReleaseBatch
from handlers.triggers.rollout_api import DecideRollout, RolloutFilter

_REFERENCE = "#/components/schemas/{model}"


class RunOrLanding(RootModel[runs.RunDetail | runs.LandingDetail]):
    """Answer of `GET /api/runs/{id}`."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """One route of the API."""

    function: str
    """Its name in function_app.py, and the `operationId`."""
    method: Literal["get", "post"]
    path: str
    summary: str
    answer: type[BaseModel]
    status: int = 200
    parameters: type[Parameters] = NoParameters
    body: type[BaseModel] | None = None
    signed: bool = False
    """Authenticated by a webhook's signature, and not by a function key."""


ROUTES: tuple[Route, ...] = (
    Route(
        function="start_run",
        method="post",
        path="/api/pipelines/{name}/runs",
        summary="Freeze what is in the pipeline's zone now, and train on it",
        answer=base.Accepted,
        status=202,
        body=StartRun,
        signed=True,
    ),
    Route(
        function="list_runs",
        method="get",
        path="/api/runs",
        summary="Runs, newest first",
        answer=runs.RunList,
        parameters=RunFilter,
    ),
    Route(
        function="get_run",
        method="get",
        path="/api/runs/{id}",
        summary="One run with its timeline, or what became of a request",
        answer=RunOrLanding,
    ),
    Route(
        function="get_trace",
        method="get",
        path="/api/traces/{id}",
        summary="The spans of one trace, from the event to the notifications",
        answer=runs.TraceDetail,
    ),
    Route(
        function="cancel_run",
        method="post",
        path="/api/runs/{id}/cancel",
        summary="Ask a run to end its job",
        answer=base.Accepted,
        status=202,
        body=CancelRun,
    ),
    Route(
        function="list_rollouts",
        method="get",
        path="/api/rollouts",
        summary="Rollouts, newest first",
        answer=rollouts.RolloutList,
        parameters=RolloutFilter,
    ),
    Route(
        function="get_rollout",
        method="get",
        path="/api/rollouts/{id}",
        summary="How far a model is on its way to an endpoint",
        answer=rollouts.RolloutDetail,
    ),
    Route(
        function="promote_rollout",
        method="post",
        path="/api/rollouts/{id}/promote",
        summary="End the step that a rollout bakes in: the next one begins",
        answer=base.Accepted,
        status=202,
        body=DecideRollout,
    ),
    Route(
        function="roll_back_rollout",
        method="post",
        path="/api/rollouts/{id}/rollback",
        summary="Set the traffic of before a rollout again",
        answer=base.Accepted,
        status=202,
        body=DecideRollout,
    ),
    Route(
        function="redrive",
        method="post",
        path="/api/redrive",
        summary="Send again what was dead-lettered",
        answer=dead_letters.Redriven,
        body=Redrive,
    ),
    Route(
        function="list_pipelines",
        method="get",
        path="/api/pipelines",
        summary="Every pipeline: what it does or waits for",
        answer=pipelines.PipelineList,
    ),
    Route(
        function="get_pipeline",
        method="get",
        path="/api/pipelines/{name}",
        summary="One pipeline with its zones and its champion",
        answer=pipelines.PipelineDetail,
    ),
    Route(
        function="pause_pipeline",
        method="post",
        path="/api/pipelines/{name}/pause",
        summary="Start no run of a pipeline: what lands is frozen and held",
        answer=pipelines.PauseChanged,
        body=PausePipeline,
    ),
    Route(
        function="resume_pipeline",
        method="post",
        path="/api/pipelines/{name}/resume",
        summary="End a pause: what was held is trained on",
        answer=pipelines.PauseChanged,
        body=ResumePipeline,
    ),
    Route(
        function="release",
        method="post",
        path="/api/pipelines/{name}/release",
        summary="Let a held batch be trained on",
        answer=base.Accepted,
        status=202,
        body=ReleaseBatch,
    ),
    Route(
        function="list_models",
        method="get",
        path="/api/pipelines/{name}/models",
        summary="The versions of a pipeline's model, newest first",
        answer=models.ModelList,
        parameters=ModelFilter,
    ),
    Route(
        function="get_model",
        method="get",
        path="/api/pipelines/{name}/models/{version}",
        summary="One version of a pipeline's model with its lineage",
        answer=models.ModelDetail,
    ),
    Route(
        function="list_model_blobs",
        method="get",
        path="/api/pipelines/{name}/models/{version}/blobs",
        summary="The blobs that a version was trained on, in order of path",
        answer=models.ModelBlobs,
        parameters=BlobFilter,
    ),
    Route(
        function="promote_model",
        method="post",
        path="/api/pipelines/{name}/models/{version}/promote",
        summary="Put a version in service: later runs are compared with it",
        answer=models.ChampionChanged,
        body=ChangeChampion,
    ),
    Route(
        function="roll_back_model",
        method="post",
        path="/api/pipelines/{name}/models/{version}/rollback",
        summary="Take the champion out of service; the version before it is in service again",
        answer=models.ChampionChanged,
        body=ChangeChampion,
    ),
    Route(
        function="explain",
        method="get",
        path="/api/explain",
        summary="What became of a blob, and why",
        answer=blobs.Explanation,
        parameters=ExplainQuestion,
    ),
    Route(
        function="list_dead_letters",
        method="get",
        path="/api/dead-letters",
        summary="What gave up, oldest first",
        answer=dead_letters.DeadLetterList,
        parameters=LetterFilter,
    ),
    Route(
        function="get_dead_letter",
        method="get",
        path="/api/dead-letters/{id}",
        summary="One dead letter with its body",
        answer=dead_letters.DeadLetterDetail,
    ),
    Route(
        function="redrive_dead_letters",
        method="post",
        path="/api/dead-letters/redrive",
        summary="Send dead letters again, each as its next attempt",
        answer=dead_letters.Redriven,
        body=RedriveLetters,
    ),
    Route(
        function="discard_dead_letters",
        method="post",
        path="/api/dead-letters/discard",
        summary="Remove dead letters, with a reason; their content stays in the records container",
        answer=dead_letters.Discarded,
        body=DiscardLetters,
    ),
    Route(
        function="list_alarms",
        method="get",
        path="/api/alarms",
        summary="Silence alarms that are on, the oldest silence first",
        answer=alarms.AlarmList,
    ),
    Route(
        function="list_queues",
        method="get",
        path="/api/queues",
        summary="Queues: who holds which nodes, who waits and why, budgets",
        answer=queues.QueueList,
    ),
    Route(
        function="list_actions",
        method="get",
        path="/api/actions",
        summary="What people did over the API, newest first",
        answer=actions.ActionList,
        parameters=ActionFilter,
    ),
)


async def get_openapi() -> Answer:
    """The document; it is made once."""
    return Answer(200, describe_api())


@cache
def describe_api() -> Mapping[str, Any]:
    """The OpenAPI document of every route but its own and the page's."""
    described: dict[type[BaseModel], None] = {base.ProblemDocument: None}
    for route in ROUTES:
        described[route.answer] = None
        if route.body is not None:
            described[route.body] = None
    modes = [(model, "serialization") for model in described]
    _, schemas = models_json_schema(modes, ref_template=_REFERENCE)  # pyright: ignore[reportArgumentType] - the literal is widened
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = _describe(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Landfall", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "functionKey": {"type": "apiKey", "in": "header", "name": "x-functions-key"},
                "entra": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
        # One of them: app setting API_SIGN_IN says which.
        "security": [{"functionKey": []}, {"entra": []}],
    }


def _describe(route: Route) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.function,
        "summary": route.summary,
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", route.path)
            ),
            *_query_parameters(route.parameters),
        ],
        "responses": {
            str(route.status): {
                "description": HTTPStatus(route.status).phrase,
                "content": {JSON_TYPE: {"schema": _reference(route.answer)}},
            },
            "default": {
                "description": "A problem",
                "content": {PROBLEM_TYPE: {"schema": _reference(base.ProblemDocument)}},
            },
        },
    }
    if route.method == "get":
        described["responses"]["304"] = {"description": HTTPStatus(304).phrase}
    if route.body is not None:
        described["requestBody"] = {"content": {JSON_TYPE: {"schema": _reference(route.body)}}}
    if route.signed:
        described["security"] = []
    return described


def _query_parameters(parameters: type[Parameters]) -> list[dict[str, Any]]:
    schema = parameters.model_json_schema(by_alias=True)
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": described}
        for name, described in schema.get("properties", {}).items()
    ]


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}
