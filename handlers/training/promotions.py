"""Activities of promotions: list, copy and register a version's files in another workspace.

`promotions/<id>/` of the records has `status.json`, `files.json`, the files as they were listed
first, and `cancelled.json` once somebody cancels it. While a promotion has not ended, the metadata
of its status says so. The metadata of each copy has its SHA-256.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from handlers.notify.approvals import read_question, record_answer
from handlers.notify.outbox import trouble
from handlers.platform import record_store, tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import is_refusal, reason
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import WORKSPACES_FILE, load_destinations
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import OPS_ALERTS
from handlers.platform.settings import Settings
from handlers.platform.tags import find_version, reference_of, tags_of
from handlers.training.model_files import (
    SHA256,
    ModelFile,
    copy_part,
    hash_of,
    list_files,
    source_folder,
)
from orchestrations.configuration.workspaces import Destination
from orchestrations.contracts.approvals import Answer
from orchestrations.contracts.base import Done
from orchestrations.contracts.promotions import (
    ENDED,
    CopyModelFiles,
    CopyProgress,
    ListModelFiles,
    ModelFiles,
    PromotionStatus,
    RecordPromotion,
    RegisterPromotedModel,
)
from orchestrations.contracts.runs import CancelRequest, Model
from orchestrations.errors import InvalidSetting, PromotionRefused
from orchestrations.names import VERSION_HEX_DIGITS, alert_id, approval_id, promotion_id

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel
    from azure.storage.blob import ContainerClient

FOLDER = "promotions/"
_STATUS = "/status.json"
# An execution begins no further part after this.
PIECE_SECONDS = 30.0
KEPT_TAGS = (tags.RUN, tags.PIPELINE, tags.DATASET_VERSION, tags.ROUND, tags.CONFIGURATION)


def find_destination(clients: Clients, name: str) -> Destination:
    """A workspace of `workspaces.yml`.

    Raises:
        PromotionRefused: there is none of this name.
    """
    destinations = load_destinations(clients.settings.pipelines_folder)
    if name not in destinations:
        raise PromotionRefused(
            f"{WORKSPACES_FILE} declares no workspace {name!r}; it declares "
            f"{', '.join(destinations) or 'none'}"
        )
    return destinations[name]


def clients_of(clients: Clients, destination: Destination) -> Clients:
    """Clients of another workspace and of its default datastore's account."""
    cached = clients.elsewhere.get(destination.id)
    if cached is None:
        values, own, its = dict(clients.settings.values), "WorkspaceStorage", destination.storage
        for suffix in ("", "__blobServiceUri"):
            values[own + suffix] = values.get(its + suffix, "")
        if not (values[own] or values[f"{own}__blobServiceUri"]):
            raise InvalidSetting(
                f"app setting {its} is missing: {WORKSPACES_FILE} names it for workspace "
                f"{destination.name}; set it to a connection string, or {its}__blobServiceUri to "
                "an endpoint for the managed identity"
            )
        values |= {
            "AZUREML_SUBSCRIPTION_ID": destination.subscription_id,
            "AZUREML_RESOURCE_GROUP": destination.resource_group,
            "AZUREML_WORKSPACE_NAME": destination.workspace,
        }
        cached = clients.elsewhere[destination.id] = Clients(Settings(values))
        vars(cached)["credential"] = clients.credential
    return cached


@activity
def list_model_files(clients: Clients, request: ListModelFiles) -> ModelFiles:
    """List the files of a version that may be promoted. The first list is kept, and stands.

    Raises:
        PromotionRefused: the version is gone or rolled back, or a file has changed.
    """
    promotion = request.promotion
    destination, model = find_destination(clients, promotion.to), _source(clients, promotion)
    files = list_files(clients, model)
    document = {each.path: each.to_dict() for each in files}
    record_store.create(clients.records, _files_record(promotion), document)
    for kept in _kept(clients, promotion):
        if document.pop(kept.path, None) != kept.to_dict():
            raise PromotionRefused(f"file {kept.path} has changed since it was listed first")
    if document:
        raise PromotionRefused(f"file {min(document)} was added since the files were listed first")
    lines = (f"{each.path} {each.size} {each.md5 or each.etag}" for each in files)
    return ModelFiles(
        hash=hash_of([destination.id, *lines])[:VERSION_HEX_DIGITS],
        files=len(files),
        bytes=sum(each.size for each in files),
        destination=destination.id,
        dataset_version=tags_of(model).get(tags.DATASET_VERSION),
    )


@activity
def copy_model_files(clients: Clients, request: CopyModelFiles) -> CopyProgress:
    """Copy the next parts of files, and read each copy back; adopt what is there.

    Raises:
        PromotionRefused: a file has changed, or there are other bits in its place.
    """
    promotion = request.promotion
    source, folder = source_folder(clients, _source(clients, promotion))
    there = clients_of(clients, find_destination(clients, promotion.to))
    target = _target(there)
    files, progress = _kept(clients, promotion), request.progress
    end = time.monotonic() + PIECE_SECONDS
    while progress.files < len(files):
        file = files[progress.files]
        progress = copy_part(
            source.get_blob_client(folder + file.path),
            target.get_blob_client(target_folder(promotion) + file.path),
            file,
            progress,
        )
        if time.monotonic() >= end:
            break
    return progress


@activity
def register_promoted_model(clients: Clients, request: RegisterPromotedModel) -> Model:
    """Register the copies under the version's own name and number; adopt what is there.

    Raises:
        PromotionRefused: there are other files than the version's, or Azure ML refuses it.
    """
    from azure.ai.ml.entities import Model as AzureMLModel  # noqa: PLC0415 - see handlers.platform.clients
    from azure.core.exceptions import AzureError  # noqa: PLC0415 - likewise

    promotion = request.promotion
    source = _source(clients, promotion)
    there = clients_of(clients, find_destination(clients, promotion.to))
    digest = _digest(clients, there, promotion)
    registered = find_version(there, promotion.model, promotion.version)
    if registered is None:
        kept = {name: value for name, value in tags_of(source).items() if _is_kept(name)}
        told = {tags.PROMOTED_BY: f"{promotion.by}: {promotion.reason}"}
        if promotion.approved is not None:
            told[f"{tags.APPROVAL}promotion"] = promotion.approved
        folder = target_folder(promotion)
        model = AzureMLModel(
            name=promotion.model,
            version=promotion.version,
            type="custom_model",
            path=f"azureml://datastores/{there.default_datastore.name}/paths/{folder}",
            description=f"Promoted from workspace {_workspace(clients)}",
            tags=kept
            | told
            | {tags.PROMOTED_FROM: str(source.id or source.path), tags.FILES_SHA256: digest},
            properties=dict(source.properties or {}),
        )
        try:
            registered = there.ml.models.create_or_update(model)
        except AzureError as error:
            registered = find_version(there, promotion.model, promotion.version)
            if registered is None and is_refusal(error):
                name = f"{promotion.model}:{promotion.version}"
                raise PromotionRefused(
                    f"cannot register {name} in {promotion.to}: {reason(error)}"
                ) from error
            if registered is None:
                raise
    if tags_of(registered).get(tags.FILES_SHA256) != digest:
        raise PromotionRefused(
            f"{promotion.model}:{promotion.version} is in workspace {promotion.to} already, with "
            f"other files: the SHA-256 of its list is "
            f"{tags_of(registered).get(tags.FILES_SHA256)}, and {digest} here"
        )
    return reference_of(registered)


@activity
def record_promotion(clients: Clients, request: RecordPromotion) -> Done:
    """Keep the status, and alert operators to the end, or to a wait that lasts."""
    keep_promotion(clients, request.promotion)
    alert_operators(clients, request.promotion, request.waits_since)
    return Done()


def alert_operators(
    clients: Clients, promotion: PromotionStatus, waits_since: datetime | None = None
) -> None:
    """Alert operators to the end of a promotion, or to a wait that lasts."""
    kind = "promotion-ended" if promotion.state in ENDED else "promotion-held"
    waited = [] if waits_since is None else [waits_since.isoformat()]
    alert = trouble(
        kind,
        alert_id=alert_id(kind, promotion.id, *waited),
        severity="information" if promotion.state == "promoted" else "warning",
        at=waits_since or promotion.since,
        data={"promotion": promotion.to_dict(), "message": message_of(promotion)},
        pipeline=promotion.pipeline,
        run=promotion.run,
    )
    send_in_background(clients, OPS_ALERTS, alert)


def message_of(promotion: PromotionStatus) -> str:
    """How far a promotion is, in a sentence."""
    why = "" if promotion.why is None else f": {promotion.why}"
    return f"{promotion.model}:{promotion.version} to {promotion.to} is {promotion.state}{why}"


def keep_promotion(clients: Clients, promotion: PromotionStatus, *, is_new: bool = False) -> bool:
    """Write the record. Return False, and change nothing, if `is_new` and one exists.

    A refused promotion's question is void. Its instance may have ended while the question was open,
    and have found another reason when it was started again.
    """
    if promotion.state == "refused":
        _void_question(clients, promotion, promotion.why or "it was refused", at=promotion.since)
    name = f"{FOLDER}{promotion.id}{_STATUS}"
    listed = {} if promotion.state in ENDED else {record_store.OPEN: "true"}
    if is_new:
        return record_store.create(clients.records, name, promotion.to_dict(), listed)
    record_store.replace(clients.records, name, promotion.to_dict(), listed)
    return True


def keep_cancellation(
    clients: Clients, promotion: PromotionStatus, cancel: CancelRequest, *, at: datetime
) -> None:
    """Refuse the promotion at its next step; its question to people, if it is open, is void."""
    record_store.create(clients.records, _cancelled_record(promotion), cancel.to_dict())
    _void_question(clients, promotion, _told(cancel), at=at)


def _void_question(clients: Clients, promotion: PromotionStatus, why: str, *, at: datetime) -> None:
    """Settle the question to people, if there is one that nobody has answered."""
    question = approval_id(promotion.id, "promotion")
    if read_question(clients, question) is not None:
        record_answer(clients, question, Answer(verb="void", reason=why, at=at))


def open_promotions(clients: Clients) -> Iterator[PromotionStatus]:
    """The records of all promotions that have not ended."""
    return map(PromotionStatus.from_dict, record_store.read_open(clients.records, FOLDER))


def read_promotions(clients: Clients, pipeline: str, version: str) -> Iterator[PromotionStatus]:
    """The records of all promotions of a version."""
    prefix = f"{FOLDER}{promotion_id(pipeline, version, '')}"
    for name in sorted(clients.records.list_blob_names(name_starts_with=prefix)):
        document = record_store.read(clients.records, name) if name.endswith(_STATUS) else 0
        if document:
            yield PromotionStatus.from_dict(document)


def target_folder(promotion: PromotionStatus) -> str:
    """The folder of a version in the default datastore of the workspace that it is promoted to."""
    return f"landfall/promoted/{promotion.model}/{promotion.version}/"


def _source(clients: Clients, promotion: PromotionStatus) -> AzureMLModel:
    cancelled = record_store.read(clients.records, _cancelled_record(promotion))
    if cancelled is not None:
        raise PromotionRefused(_told(CancelRequest.from_dict(cancelled)))
    model = find_version(clients, promotion.model, promotion.version)
    name = f"{promotion.model}:{promotion.version}"
    if model is None:
        raise PromotionRefused(f"model {name} was deleted")
    if tags.ROLLED_BACK_AT in tags_of(model):
        raise PromotionRefused(f"model {name} was rolled back: put it in service again first")
    return model


def _target(there: Clients) -> ContainerClient:
    return there.workspace_blobs.get_container_client(there.default_datastore.container_name)


def _digest(clients: Clients, there: Clients, promotion: PromotionStatus) -> str:
    """The hash of what `sha256sum` prints for the files, from what was read back.

    Raises:
        PromotionRefused: there are other files, too.
    """
    folder = target_folder(promotion)
    blobs = _target(there).list_blobs(name_starts_with=folder, include=["metadata"])
    digests = {each.name.removeprefix(folder): (each.metadata or {}).get(SHA256) for each in blobs}
    more = digests.keys() ^ {each.path for each in _kept(clients, promotion)}
    if more:
        raise PromotionRefused(
            f"{folder} in {promotion.to} has not exactly the files of the version: {min(more)}"
        )
    return hash_of(f"{digest}  {path}" for path, digest in sorted(digests.items()))


def _is_kept(tag: str) -> bool:
    return tag in KEPT_TAGS or tag.startswith(tags.APPROVAL)


def _workspace(clients: Clients) -> str:
    return clients.settings.required("AZUREML_WORKSPACE_NAME")


def _kept(clients: Clients, promotion: PromotionStatus) -> Sequence[ModelFile]:
    """The files as they were listed first, sorted by path."""
    document = record_store.read(clients.records, _files_record(promotion))
    assert document is not None, "list_model_files has written it"
    return [ModelFile.from_dict(each) for _, each in sorted(document.items())]


def _cancelled_record(promotion: PromotionStatus) -> str:
    return f"{FOLDER}{promotion.id}/cancelled.json"


def _told(cancel: CancelRequest) -> str:
    return f"cancelled by {cancel.by}: {cancel.reason}"


def _files_record(promotion: PromotionStatus) -> str:
    return f"{FOLDER}{promotion.id}/files.json"
