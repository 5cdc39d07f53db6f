"""/api/pipelines/{name}/models: the versions of a pipeline's model, their lineage, the champion."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from azure.core.exceptions import AzureError
from pydantic import Field

from handlers.api.actions import Asked, caller, keep_action
from handlers.api.bodies import parse_body
from handlers.api.documents.blobs import SeenBy
from handlers.api.documents.models import (
    ChampionChanged,
    ModelBlob,
    ModelBlobs,
    ModelDataset,
    ModelDetail,
    ModelList,
    ModelStage,
    ModelSummary,
)
from handlers.api.parameters import Parameters, find_pipeline, next_url, parse_parameters
from handlers.azure_ml import tags
from handlers.azure_ml.champions import (
    ChampionRefused,
    active_versions,
    before,
    choose_champion,
    in_service_since,
    is_ours,
    promote,
    registered_at,
    roll_back,
    rolled_back_at,
)
from handlers.azure_ml.model_registry import all_versions
from handlers.azure_ml.tags import tags_of
from handlers.configuration.clients import Clients
from handlers.landing_zone.dataset_claims import claimed_dataset
from handlers.landing_zone.manifests import find_line, read_manifest_from
from handlers.triggers.problem_details import Answer, Problem
from orchestrations.manifest import ManifestLine
from orchestrations.pipeline import Pipeline

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel

VERSIONS_SEARCHED = 20
"""A blob's way into models is followed through so many of the newest versions."""
SEARCHES_AT_ONCE = 8
_METRICS = "metrics."


class ModelFilter(Parameters):
    """Parameters of GET /api/pipelines/{name}/models."""

    after: Annotated[int | None, Field(ge=1)] = None
    """Of `next`: a version; those before it follow."""
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class BlobFilter(Parameters):
    """Parameters of GET /api/pipelines/{name}/models/{version}/blobs."""

    after: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    """Of `next`: a path; those after it follow."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class ChangeChampion(Asked):
    """Body of a promotion or a rollback: who asks, and why."""

    reason: str = Field(min_length=1, max_length=500)


async def list_models(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    parameters: Mapping[str, str],
    *,
    name: str,
) -> Answer:
    """The versions of a pipeline's model, newest first."""

    def read() -> Answer:
        asked = parse_parameters(ModelFilter, parameters)
        pipeline = find_pipeline(pipelines, name)
        versions = _Versions(clients, pipeline)
        follows = [each for each in versions.newest_first if _is_after(each, asked.after)]
        shown = follows[: asked.limit]
        following = str(shown[-1].version) if len(follows) > asked.limit else None
        listed = ModelList(
            pipeline=name,
            name=pipeline.model.name,
            metric=pipeline.gate.metric,
            goal=pipeline.gate.goal,
            floor=pipeline.gate.floor,
            champion=versions.champion,
            models=[versions.summary(each) for each in shown],
            next=next_url(f"/api/pipelines/{name}/models", asked, following),
        )
        return Answer(200, listed.model_dump(mode="json"))

    return await asyncio.to_thread(_answer, read)


async def get_model(
    clients: Clients, pipelines: Mapping[str, Pipeline], *, name: str, version: str
) -> Answer:
    """One version with what it was made of."""

    def read() -> Answer:
        pipeline = find_pipeline(pipelines, name)
        versions = _Versions(clients, pipeline)
        model = versions.get(version)
        detail = versions.detail(model, _dataset(clients, pipeline, model))
        return Answer(200, detail.model_dump(mode="json"))

    return await asyncio.to_thread(_answer, read)


async def list_model_blobs(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    parameters: Mapping[str, str],
    *,
    name: str,
    version: str,
) -> Answer:
    """A page of the blobs that a version was trained on; a page of many costs no more."""

    def read() -> Answer:
        asked = parse_parameters(BlobFilter, parameters)
        pipeline = find_pipeline(pipelines, name)
        dataset_version = tags_of(_Versions(clients, pipeline).get(version))[tags.DATASET_VERSION]
        dataset = claimed_dataset(clients, name, dataset_version)
        if dataset is None:
            raise Problem(
                404, "unknown-dataset", f"the claim on dataset version {dataset_version} is gone"
            )
        lines = read_manifest_from(clients, dataset, asked.after or "")
        follows = (line for line in lines if line.path != asked.after)
        found = list(itertools.islice(follows, asked.limit + 1))
        shown = found[: asked.limit]
        following = shown[-1].path if len(found) > asked.limit else None
        listed = ModelBlobs(
            dataset_version=dataset_version,
            blobs=[
                ModelBlob(path=line.path, size=line.size, md5=line.md5, etag=line.etag)
                for line in shown
            ],
            next=next_url(f"/api/pipelines/{name}/models/{version}/blobs", asked, following),
        )
        return Answer(200, listed.model_dump(mode="json"))

    return await asyncio.to_thread(_answer, read)


async def promote_model(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    *,
    name: str,
    version: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Put a version in service: later runs are compared with it."""

    def act() -> Answer:
        pipeline, asked = find_pipeline(pipelines, name), parse_body(ChangeChampion, body)
        changed = promote(clients, pipeline, version, at=datetime.now(UTC))
        outcome = "in service" if changed else "it was in service already"
        on = f"model {pipeline.model.name}:{version}"
        by = caller(headers, asked.by)
        keep_action(clients, "promote", on, by=by, reason=asked.reason, outcome=outcome)
        return Answer(200, ChampionChanged(champion=version, changed=changed).model_dump())

    return await asyncio.to_thread(_answer, act)


async def roll_back_model(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    *,
    name: str,
    version: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Take the champion out of service; the version before it is in service again."""

    def act() -> Answer:
        pipeline, asked = find_pipeline(pipelines, name), parse_body(ChangeChampion, body)
        was = _Versions(clients, pipeline).champion
        roll_back(clients, pipeline, version, at=datetime.now(UTC))
        now = _Versions(clients, pipeline).champion
        assert now is not None, "a rollback leaves a version in service"
        by = caller(headers, asked.by)
        on = f"model {pipeline.model.name}:{version}"
        outcome = f"version {now} is in service"
        keep_action(clients, "rollback", on, by=by, reason=asked.reason, outcome=outcome)
        return Answer(200, ChampionChanged(champion=now, changed=now != was).model_dump())

    return await asyncio.to_thread(_answer, act)


def seen_by(
    clients: Clients,
    pipeline: Pipeline,
    path: str,
    *,
    is_current: Callable[[ManifestLine], bool],
    dataset_version: str | None = None,
) -> list[SeenBy]:
    """The versions of the pipeline's model that were trained on a path, newest first.

    Args:
        clients: for the model registry and the manifests.
        pipeline: whose model.
        path: of a blob, relative to the pipeline's prefix.
        is_current: whether a line of a manifest has the content that the blob has now.
        dataset_version: the version that was trained on this one is among them, however old.

    Raises:
        AzureError: Azure ML or the storage cannot be asked.
    """
    versions = _Versions(clients, pipeline)
    searched = versions.newest_first[:VERSIONS_SEARCHED]
    searched += [
        each
        for each in versions.newest_first[VERSIONS_SEARCHED:]
        if tags_of(each)[tags.DATASET_VERSION] == dataset_version
    ]

    def search(model: AzureMLModel) -> SeenBy | None:
        dataset_version = tags_of(model)[tags.DATASET_VERSION]
        dataset = claimed_dataset(clients, pipeline.name, dataset_version)
        line = None if dataset is None else find_line(clients, dataset, path)
        if line is None:
            return None
        return SeenBy(
            version=str(model.version),
            stage=versions.stage(model),
            dataset_version=dataset_version,
            etag=line.etag,
            is_current=is_current(line),
        )

    with ThreadPoolExecutor(SEARCHES_AT_ONCE) as pool:
        found = pool.map(search, searched)
        return [each for each in found if each is not None]


class _Versions:
    """All versions that Landfall registered of a pipeline's model; two requests."""

    def __init__(self, clients: Clients, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._active = active_versions(clients, pipeline.model.name)
        self._active_names = {str(each.version) for each in self._active}
        ours = [each for each in all_versions(clients, pipeline.model.name) if is_ours(each)]
        self.newest_first = sorted(ours, key=lambda each: -int(str(each.version)))
        champion = choose_champion(self._active)
        self.champion = None if champion is None else str(champion.version)

    def get(self, version: str) -> AzureMLModel:
        """One version.

        Raises:
            Problem: 404.
        """
        for each in self.newest_first:
            if str(each.version) == version:
                return each
        name = self._pipeline.model.name
        raise Problem(
            404, "unknown-model", f"there is no model {name}:{version} of Landfall's in Azure ML"
        )

    def stage(self, model: AzureMLModel) -> ModelStage:
        """The stage of a version."""
        version = str(model.version)
        if version == self.champion:
            return "champion"
        if version not in self._active_names:
            return "archived"
        if rolled_back_at(model) is not None:
            return "rolled-back"
        return "challenger" if tags_of(model).get(tags.ROLE) == tags.CHALLENGER else "former"

    def summary(self, model: AzureMLModel) -> ModelSummary:
        """A version as lists show it."""
        found = tags_of(model)
        gain = found.get(tags.GAIN)
        return ModelSummary(
            name=str(model.name),
            version=str(model.version),
            stage=self.stage(model),
            run=found.get(tags.RUN, ""),
            dataset_version=found[tags.DATASET_VERSION],
            registered_at=registered_at(model),
            metrics=_metrics(model),
            compared_with=found.get(tags.CHAMPION),
            gain=None if gain is None else float(gain),
            in_service_since=in_service_since(model),
            rolled_back_at=rolled_back_at(model),
        )

    def detail(self, model: AzureMLModel, dataset: ModelDataset | None) -> ModelDetail:
        """A version with its lineage."""
        properties: Mapping[str, str] = model.properties or {}
        previous = before(model, self._active)
        return ModelDetail(
            **dict(self.summary(model)),
            pipeline=self._pipeline.name,
            path=str(model.path),
            dataset=dataset,
            job=properties.get("landfall.job"),
            code=properties.get("landfall.code") or None,
            results=properties.get("landfall.results"),
            reason=properties.get("landfall.reason"),
            configuration=tags_of(model).get(tags.CONFIGURATION),
            redriven_from=tags_of(model).get(tags.REDRIVEN_FROM),
            rolls_back_to=None if previous is None else str(previous.version),
        )


def _metrics(model: AzureMLModel) -> dict[str, float]:
    """The metrics that are kept as properties of the version, but for what JSON cannot say."""
    properties: Mapping[str, str] = model.properties or {}
    found = {
        name.removeprefix(_METRICS): float(value)
        for name, value in properties.items()
        if name.startswith(_METRICS)
    }
    return {name: value for name, value in sorted(found.items()) if math.isfinite(value)}


def _dataset(clients: Clients, pipeline: Pipeline, model: AzureMLModel) -> ModelDataset | None:
    version = tags_of(model)[tags.DATASET_VERSION]
    dataset = claimed_dataset(clients, pipeline.name, version)
    if dataset is None:
        return None
    return ModelDataset(
        version=dataset.version,
        blobs=dataset.blobs,
        bytes=dataset.bytes,
        frozen_at=dataset.frozen_at,
        partition=dataset.partition,
        manifest=dataset.manifest_path,
    )


def _is_after(model: AzureMLModel, after: int | None) -> bool:
    return after is None or int(str(model.version)) < after


def _answer(make: Callable[[], Answer]) -> Answer:
    """An answer, or the problem document of what is in its way."""
    statuses: Mapping[str, int] = {"unknown-model": 404}
    try:
        return make()
    except Problem as problem:
        return problem.to_answer()
    except ChampionRefused as refusal:
        status = statuses.get(refusal.kind, 409)
        return Problem(status, refusal.kind, str(refusal), where="version").to_answer()
    except AzureError as error:
        # https://www.rfc-editor.org/rfc/rfc9110#name-502-bad-gateway
        return Problem(
            502, "azure-ml", f"Azure ML could not be asked: {type(error).__name__}"
        ).to_answer()
