"""/api/pipelines/{name}/models: the versions of a pipeline's model, their lineage and champion."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from azure.core.exceptions import AzureError
from pydantic import Field

from handlers.landing.dataset_claims import claimed_dataset
from handlers.operate.api.model_documents import (
    ModelBlob,
    ModelBlobs,
    ModelDataset,
    ModelDetail,
    ModelList,
    ModelStage,
    ModelSummary,
    SeenBy,
)
from handlers.operate.api.requests import Parameters, Problem, next_url
from handlers.platform import tags
from handlers.platform.clients import Clients
from handlers.platform.manifests import find_line, has_manifest, read_manifest_from
from handlers.platform.record_store import first_page
from handlers.platform.run_records import read_run_record
from handlers.platform.tags import all_versions, tags_of
from handlers.training.champions import (
    ChampionRefused,
    active_versions,
    champion_to_restore,
    choose_champion,
    find_active,
    in_service_since,
    is_ours,
    registered_at,
    rolled_back_at,
)
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.contracts.training import RunRecord

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel

VERSIONS_SEARCHED = 20
"""How many of the newest versions are searched for a blob."""
SEARCHES_AT_ONCE = 8
_METRICS = "metrics."
_PARAMETER = "landfall.parameter."


class ModelFilter(Parameters):
    """Parameters of GET /api/pipelines/{name}/models."""

    after: Annotated[int | None, Field(ge=1)] = None
    """A version, from `next`: the page has the versions before it."""
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class BlobFilter(Parameters):
    """Parameters of GET /api/pipelines/{name}/models/{version}/blobs."""

    after: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    """A path, from `next`: the page has the paths after it."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


def list_models(clients: Clients, pipeline: Pipeline, query: ModelFilter) -> ModelList:
    """List the versions of a pipeline's model, newest first."""
    with azure_ml_asked():
        versions = _Versions(clients, pipeline)
    follows = ((str(each.version), each) for each in versions.newest_first)
    after = math.inf if query.after is None else query.after
    shown, following = first_page((each for each in follows if int(each[0]) < after), query.limit)
    return ModelList(
        pipeline=pipeline.name,
        name=pipeline.model.name,
        metric=pipeline.gate.metric,
        goal=pipeline.gate.goal,
        floor=pipeline.gate.floor,
        endpoint=None if pipeline.deploy is None else pipeline.deploy.endpoint,
        champion=versions.champion,
        models=[versions.summary(each) for each in shown],
        next=next_url(f"/api/pipelines/{pipeline.name}/models", query, following),
    )


def get_model(clients: Clients, pipeline: Pipeline, *, version: str) -> ModelDetail:
    """Return one version of a pipeline's model with its lineage."""
    with azure_ml_asked():
        versions = _Versions(clients, pipeline)
        model = versions.get(version)
        run = tags_of(model).get(tags.RUN)
        record = None if run is None else read_run_record(clients, run)
        return versions.detail(model, _dataset(clients, pipeline, model), record)


def list_model_blobs(
    clients: Clients, pipeline: Pipeline, query: BlobFilter, *, version: str
) -> ModelBlobs:
    """List the blobs that a version was trained on, sorted by path.

    The cost of a page does not depend on the number of blobs.
    """
    with azure_ml_asked():
        model = _Versions(clients, pipeline).get(version)
        dataset_version = tags_of(model).get(tags.DATASET_VERSION)
        dataset = _claimed(clients, pipeline, model)
        if dataset_version is None or dataset is None or not has_manifest(clients, dataset):
            raise Problem(
                404,
                "unknown-dataset",
                f"the manifest of dataset version {dataset_version} was removed"
                if dataset_version
                else f"Landfall did not train {pipeline.model.name}:{version}: its data is unknown",
            )
        lines = read_manifest_from(clients, dataset, query.after or "")
        follows = ((line.path, line) for line in lines if line.path != query.after)
        shown, following = first_page(follows, query.limit)
    return ModelBlobs(
        dataset_version=dataset_version,
        blobs=[ModelBlob.model_validate(line) for line in shown],
        next=next_url(f"/api/pipelines/{pipeline.name}/models/{version}/blobs", query, following),
    )


def find_model(clients: Clients, pipeline: Pipeline, version: str) -> AzureMLModel:
    """A version that can be in service.

    Raises:
        Problem: 404 or 409, there is no such version, or it is archived; 502, Azure ML does not
            answer.
    """
    with azure_ml_asked():
        models = active_versions(clients, pipeline.model.name)
        return find_active(clients, pipeline, models, version)


def seen_by(
    clients: Clients,
    pipeline: Pipeline,
    path: str,
    *,
    is_current: Callable[[ManifestLine], bool],
    dataset_version: str | None = None,
) -> list[SeenBy]:
    """The versions of the pipeline's model that were trained on a path, newest first.

    The path is relative to the pipeline's prefix; `is_current` decides whether a line of a manifest
    has the current content of the blob. Versions that were trained on `dataset_version` are always
    searched, even if they are not among the newest `VERSIONS_SEARCHED`.

    Raises:
        AzureError: Azure ML or the storage is not available.
    """
    versions = _Versions(clients, pipeline)
    searched = versions.newest_first[:VERSIONS_SEARCHED]
    searched += [
        each
        for each in versions.newest_first[VERSIONS_SEARCHED:]
        if tags_of(each).get(tags.DATASET_VERSION) == dataset_version
    ]

    def search(model: AzureMLModel) -> SeenBy | None:
        dataset = _claimed(clients, pipeline, model)
        line = None if dataset is None else find_line(clients, dataset, path)
        if dataset is None or line is None:
            return None
        return SeenBy(
            version=str(model.version),
            stage=versions.stage(model),
            dataset_version=dataset.version,
            etag=line.etag,
            is_current=is_current(line),
        )

    with ThreadPoolExecutor(SEARCHES_AT_ONCE) as pool:
        found = pool.map(search, searched)
        return [each for each in found if each is not None]


class _Versions:
    """All versions of a pipeline's model that are Landfall's, read by two requests."""

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
            Problem: 404, Landfall did not register this version.
        """
        for each in self.newest_first:
            if str(each.version) == version:
                return each
        name = self._pipeline.model.name
        raise Problem(
            404, "unknown-model", f"there is no model {name}:{version} of Landfall's in Azure ML"
        )

    def stage(self, model: AzureMLModel) -> ModelStage:
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
        tagged = tags_of(model)
        gain = tagged.get(tags.GAIN)
        return ModelSummary(
            name=str(model.name),
            version=str(model.version),
            stage=self.stage(model),
            run=tagged.get(tags.RUN),
            dataset_version=tagged.get(tags.DATASET_VERSION),
            registered_at=registered_at(model),
            metrics=_metrics(model),
            compared_with=tagged.get(tags.CHAMPION),
            gain=None if gain is None else float(gain),
            in_service_since=in_service_since(model),
            rolled_back_at=rolled_back_at(model),
        )

    def detail(
        self, model: AzureMLModel, dataset: ModelDataset | None, record: RunRecord | None
    ) -> ModelDetail:
        """A version with its lineage."""
        properties: Mapping[str, str] = model.properties or {}
        previous, deploy = champion_to_restore(model, self._active), self._pipeline.deploy
        return ModelDetail(
            **dict(self.summary(model)),
            pipeline=self._pipeline.name,
            endpoint=None if deploy is None else deploy.endpoint,
            path=str(model.path),
            dataset=dataset,
            job=properties.get("landfall.job"),
            code=properties.get("landfall.code") or None,
            environment=properties.get("landfall.environment"),
            compute=record and record.compute,
            cost=record and record.known_cost,
            results=properties.get("landfall.results"),
            reason=properties.get("landfall.reason"),
            difference=properties.get("landfall.difference"),
            parameters={
                name.removeprefix(_PARAMETER): json.loads(value)
                for name, value in sorted(properties.items())
                if name.startswith(_PARAMETER)
            },
            configuration=tags_of(model).get(tags.CONFIGURATION),
            approvals={
                name.removeprefix(tags.APPROVAL): told
                for name, told in {**properties, **tags_of(model)}.items()
                if name.startswith(tags.APPROVAL)
            },
            redriven_from=tags_of(model).get(tags.REDRIVEN_FROM),
            rolls_back_to=None if previous is None else str(previous.version),
        )


def _metrics(model: AzureMLModel) -> dict[str, float]:
    """The metrics in the version's properties, without values that JSON lacks: NaN, infinity."""
    properties: Mapping[str, str] = model.properties or {}
    metrics = {
        name.removeprefix(_METRICS): float(value)
        for name, value in properties.items()
        if name.startswith(_METRICS)
    }
    return {name: value for name, value in sorted(metrics.items()) if math.isfinite(value)}


def _dataset(clients: Clients, pipeline: Pipeline, model: AzureMLModel) -> ModelDataset | None:
    dataset = _claimed(clients, pipeline, model)
    return None if dataset is None else ModelDataset.model_validate(dataset)


def _claimed(clients: Clients, pipeline: Pipeline, model: AzureMLModel) -> Dataset | None:
    """What the version was trained on; None if Landfall did not train it."""
    version = tags_of(model).get(tags.DATASET_VERSION)
    return None if version is None else claimed_dataset(clients, pipeline.name, version)


@contextmanager
def azure_ml_asked() -> Generator[None]:
    """Raise a refused change as 404 or 409, and an error of Azure as 502."""
    try:
        yield
    except ChampionRefused as refusal:
        status = 404 if refusal.kind == "unknown-model" else 409
        raise Problem(status, refusal.kind, str(refusal), where="version") from None
    except AzureError as error:
        # https://www.rfc-editor.org/rfc/rfc9110#name-502-bad-gateway
        kind = type(error).__name__
        raise Problem(502, "azure-ml", f"Azure ML could not be asked: {kind}") from None
