"""/api/pipelines/{name}/models/{version}/promotions: a version goes into another workspace."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.models import find_model
from handlers.operate.api.requests import Accepted, Document, Parameters, Problem
from handlers.platform import tags
from handlers.platform.bulkheads import AZURE_ML, STORAGE
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_destinations
from handlers.platform.instances import (
    exists,
    failure_sentence,
    is_broken,
    parsed,
    start_once,
    wake_up,
)
from handlers.platform.tags import tags_of
from handlers.training.promotions import (
    clients_of,
    find_destination,
    keep_cancellation,
    keep_promotion,
    read_promotions,
)
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.promotions import (
    ENDED,
    PromotionInput,
    PromotionState,
    PromotionStatus,
)
from orchestrations.contracts.runs import CancelRequest, Model
from orchestrations.errors import PermanentError
from orchestrations.training.promotion import promotion


class Promote(Asked):
    """Body of POST /api/pipelines/{name}/models/{version}/promotions and …/promotions/cancel."""

    reason: str = Field(min_length=1, max_length=200)
    to: str = Field(min_length=1, max_length=40)
    """The name of a workspace in `workspaces.yml`."""


class PromotionFilter(Parameters):
    """Parameters of GET /api/pipelines/{name}/models/{version}/promotions."""

    to: Annotated[str | None, Field(max_length=40)] = None


class PromotionDetail(Document):
    """A promotion of a version."""

    id: str
    model: str
    version: str
    to: str
    by: str
    reason: str
    asked_at: datetime
    state: PromotionState
    since: datetime
    why: str | None
    """What it waits for, or why it ended so."""
    approval: str | None
    approved: str | None
    files: int | None
    bytes: int | None
    copied: int
    registered: Model | None
    has_ended: bool
    broken: bool
    """Its instance failed or was terminated: a repeated request starts it again."""


class PromotionList(Document):
    """Answer of GET /api/pipelines/{name}/models/{version}/promotions, newest last."""

    promotions: list[PromotionDetail]
    workspaces: list[str]
    """The names of the workspaces in `workspaces.yml`."""


async def promote_to_workspace(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    request: Promote,
    *,
    version: str,
    now: datetime,
) -> Accepted:
    """Copy a version, with its lineage, to another workspace, and register it there.

    A repeated request gets the promotion that is under way or has succeeded. After a refusal or a
    rejection there is a new one.
    """
    try:
        destination = await STORAGE.ask(find_destination, clients, request.to)
        await STORAGE.ask(clients_of, clients, destination)
    except PermanentError as error:
        raise Problem(409, "no-such-workspace", str(error), where="to") from None
    model = await AZURE_ML.ask(find_model, clients, pipeline, version)
    run = tags_of(model).get(tags.RUN)
    if run is None or tags.ROLLED_BACK_AT in tags_of(model):
        why = "Landfall did not train it" if run is None else "it was rolled back"
        name = f"{pipeline.model.name}:{version}"
        raise Problem(409, "not-promotable", f"model {name} has no lineage to keep: {why}")
    before = await STORAGE.ask(_newest, clients, pipeline, version, request.to)
    status = before
    if before is None or before.state in ("rejected", "refused"):
        status = PromotionStatus(
            pipeline=pipeline.name,
            model=pipeline.model.name,
            version=version,
            run=run,
            to=request.to,
            attempt=0 if before is None else before.attempt + 1,
            by=request.by,
            reason=request.reason,
            asked_at=now,
            since=now,
        )
        # Its record is there before its instance: if the process dies here, the next request
        # starts the instance.
        if not await STORAGE.ask(_keep, clients, status):
            status = await STORAGE.ask(_newest, clients, pipeline, version, request.to)
    assert status is not None, "another request has recorded it"
    if status.state not in ENDED:
        given = PromotionInput(status=status, rule=destination.approve).to_dict()
        await start_once(starter, promotion.__name__, status.id, given, again=is_broken)
    return await _accepted(clients, request, "promote", status)


async def cancel_promotion(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    request: Promote,
    *,
    version: str,
    now: datetime,
) -> Accepted:
    """Stop the promotion of a version to a workspace at its next step; it ends as refused.

    A version that is registered there meanwhile stays, and the promotion ends as promoted. The
    request is recorded before the promotion is woken up: if it misses that, it finds the record.
    """
    status = await STORAGE.ask(_newest, clients, pipeline, version, request.to)
    if status is None:
        what = f"{pipeline.model.name}:{version} was not promoted to {request.to}"
        raise Problem(404, "unknown-promotion", what)
    if status.state in ENDED:
        raise Problem(409, "promotion-has-ended", f"{status.id} has ended as {status.state}")
    cancel = CancelRequest(by=request.by, reason=request.reason)
    await STORAGE.ask(keep_cancellation, clients, status, cancel, at=now)
    await wake_up(starter, status.id)
    return await _accepted(clients, request, "cancel promotion", status)


async def list_promotions(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    query: PromotionFilter,
    *,
    version: str,
) -> PromotionList:
    """List the promotions of a version, with how far each is."""
    promotions = await STORAGE.ask(_recorded, clients, pipeline, version, query.to)
    declared = await STORAGE.ask(load_destinations, clients.settings.pipelines_folder)
    return PromotionList(
        promotions=[await _detail(starter, each) for each in promotions], workspaces=list(declared)
    )


async def _accepted(
    clients: Clients, request: Promote, verb: str, promotion: PromotionStatus
) -> Accepted:
    """Record the action; the answer says where to follow the promotion."""
    what, on = f"{verb} to {request.to}", f"model {promotion.model}:{promotion.version}"
    await STORAGE.ask(keep_action, clients, what, on, request, outcome=promotion.id)
    path = f"/api/pipelines/{promotion.pipeline}/models/{promotion.version}/promotions"
    return Accepted(id=promotion.id, status_url=f"{path}?to={request.to}")


async def _detail(starter: DurableOrchestrationClient, status: PromotionStatus) -> PromotionDetail:
    broken, why = False, ""
    if status.state not in ENDED:
        instance = await starter.get_status(status.id)
        if not exists(instance):
            broken, why = True, "it could not be started: ask again"
        elif is_broken(instance):
            broken, why = True, failure_sentence(instance)
        shown = parsed(instance.custom_status)
        status = PromotionStatus.from_dict(shown) if shown else status
        if broken:
            status = status.model_copy(update={"why": why})
    listed = status.listed
    return PromotionDetail(
        **{name: value for name, value in status if name in PromotionDetail.model_fields},
        id=status.id,
        files=None if listed is None else listed.files,
        bytes=None if listed is None else listed.bytes,
        has_ended=status.state in ENDED,
        broken=broken,
    )


def _keep(clients: Clients, status: PromotionStatus) -> bool:
    return keep_promotion(clients, status, is_new=True)


def _recorded(
    clients: Clients, pipeline: Pipeline, version: str, to: str | None
) -> list[PromotionStatus]:
    found = read_promotions(clients, pipeline.name, version)
    return sorted(
        (each for each in found if to in (None, each.to)), key=lambda it: (it.to, it.attempt)
    )


def _newest(clients: Clients, pipeline: Pipeline, version: str, to: str) -> PromotionStatus | None:
    return next(reversed(_recorded(clients, pipeline, version, to)), None)
