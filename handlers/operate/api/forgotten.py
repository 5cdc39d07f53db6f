"""/api/forgotten: leave blobs out of all later manifests, and tell which models had them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import ClassVar

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.landing.blob_events import parse_blob_address, watching
from handlers.landing.forgetting import (
    count_contents,
    find_unfinished,
    keep_request,
    list_requests,
    read_request,
    read_versions,
)
from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.models import azure_ml_asked
from handlers.operate.api.requests import Accepted, Document, Problem, invalid_request
from handlers.platform import tags
from handlers.platform.bulkheads import STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import exists, start_once
from handlers.platform.tags import all_versions, tags_of
from handlers.training.champions import find_champion
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.forgetting import ForgetBlobs, ForgetRequest, ForgottenVersion
from orchestrations.errors import InvalidEvent
from orchestrations.landing.forgetting import forgetting

BLOBS_LIMIT = 10_000


class Forget(Asked):
    """Body of POST /api/forgotten."""

    LIMIT_BYTES: ClassVar[int] = 4 * 1024 * 1024

    reason: str = Field(min_length=1, max_length=500)
    blobs: list[str] = Field(min_length=1, max_length=BLOBS_LIMIT)
    """URLs, or container/path."""


class ForgottenSummary(Document):
    """A request to forget blobs, in a list."""

    id: str
    at: datetime
    by: str
    reason: str
    asked_blobs: int
    done_at: datetime | None


class ForgottenVersionState(Document):
    """A dataset version that has forgotten contents."""

    pipeline: str
    version: str
    blobs: int
    copies_deleted: int


class ForgottenModel(Document):
    """A version of a model that was trained on forgotten contents."""

    pipeline: str
    name: str
    version: str
    in_service: bool
    dataset_version: str
    blobs: int


class ForgottenDetail(ForgottenSummary):
    """Answer of GET /api/forgotten/{request}; complete when `done_at` is set."""

    contents: int
    """How many contents the names stood for."""
    versions: list[ForgottenVersionState]
    models: list[ForgottenModel]
    """Those in service first. Models of pipelines that are not deployed are not among them."""


class ForgottenList(Document):
    """Answer of GET /api/forgotten, newest first."""

    requests: list[ForgottenSummary]


async def forget(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    body: Forget,
    *,
    now: datetime,
) -> Accepted:
    """Forget blobs: no later manifest has their contents, under any name.

    A repeated request goes on with the one before, if that could not be started. If it could, it
    may have passed what was uploaded since: the repeated one is another request.

    Raises:
        Problem: 400, an address is none of a blob in a pipeline's zone.
    """
    blobs: dict[str, list[str]] = {}
    for address in body.blobs:
        try:
            container, name = parse_blob_address(address, clients.blobs.url)
        except InvalidEvent as error:
            raise invalid_request(str(error), where="blobs") from None
        pipeline = watching(pipelines.values(), container, name)
        if pipeline is None:
            raise invalid_request(f"no pipeline watches {container}/{name}", where="blobs")
        blobs.setdefault(pipeline.name, []).append(name)
    digest = hashlib.sha256(repr(sorted(blobs.items())).encode()).hexdigest()[:8]
    request = ForgetRequest(
        id=f"forget-{now:%Y%m%dT%H%M%S}-{digest}",
        at=now,
        by=body.by,
        reason=body.reason,
        blobs=blobs,
        asked_blobs=len(body.blobs),
    )
    known = await STORAGE.ask(find_unfinished, clients, digest=digest)
    if known and not exists(await starter.get_status(known[0].id)):
        request = known[0]  # it was recorded, and could not be started
    await STORAGE.ask(keep_request, clients, request)
    document = ForgetBlobs(request=request.id).to_dict()
    await start_once(starter, forgetting.__name__, request.id, document)
    on = f"{request.asked_blobs} blobs"
    await STORAGE.ask(keep_action, clients, "forget", on, body, outcome=request.id)
    return Accepted(id=request.id, status_url=f"/api/forgotten/{request.id}")


def list_forgotten(clients: Clients) -> ForgottenList:
    """List the requests to forget blobs, newest first."""
    return ForgottenList(
        requests=[ForgottenSummary.model_validate(each) for each in list_requests(clients)]
    )


def get_forgotten(
    clients: Clients, pipelines: Mapping[str, Pipeline], *, request: str
) -> ForgottenDetail:
    """Return a request with the dataset versions and the models that had the contents."""
    record = read_request(clients, request)
    if record is None:
        raise Problem(404, "unknown-request", f"there is no request {request!r} to forget blobs")
    versions = read_versions(clients, request)
    with azure_ml_asked():
        models = [
            model
            for name in sorted({each.pipeline for each in versions} & pipelines.keys())
            for model in _models(clients, pipelines[name], versions)
        ]
    return ForgottenDetail(
        **dict(ForgottenSummary.model_validate(record)),
        contents=count_contents(clients, request),
        versions=[ForgottenVersionState.model_validate(each) for each in versions],
        models=sorted(models, key=lambda it: not it.in_service),
    )


def _models(
    clients: Clients, pipeline: Pipeline, versions: list[ForgottenVersion]
) -> Iterator[ForgottenModel]:
    blobs = {each.version: each.blobs for each in versions if each.pipeline == pipeline.name}
    champion = find_champion(clients, pipeline)
    for model in all_versions(clients, pipeline.model.name):
        dataset_version = tags_of(model).get(tags.DATASET_VERSION, "")
        if dataset_version in blobs and tags_of(model).get(tags.PIPELINE) == pipeline.name:
            yield ForgottenModel(
                pipeline=pipeline.name,
                name=str(model.name),
                version=str(model.version),
                in_service=champion is not None and champion.version == str(model.version),
                dataset_version=dataset_version,
                blobs=blobs[dataset_version],
            )
