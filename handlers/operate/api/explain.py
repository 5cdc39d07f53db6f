"""GET /api/explain?blob=…: the state of a blob, its reason, and its history."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, assert_never

from azure.core.exceptions import AzureError, ResourceNotFoundError

from handlers.landing import event_records
from handlers.landing.batch_contents import is_directory_stub, read_quarantine
from handlers.landing.batch_records import BATCHES_SEARCHED, BatchSearch, last_batch, read_held
from handlers.landing.blob_events import normal_etag, parse_blob_address, watching, why_unsafe
from handlers.landing.dataset_claims import claimed_dataset, find_end_by_check
from handlers.landing.forgetting import content_of, read_contents
from handlers.landing.zone_troubles import read_troubles
from handlers.operate.api import sentences
from handlers.operate.api.documents import ExplainedEvent, Explanation
from handlers.operate.api.model_documents import InModel, ModelVersion, SeenBy
from handlers.operate.api.models import seen_by
from handlers.operate.api.requests import Parameters, invalid_request
from handlers.platform.clients import Clients
from handlers.platform.manifests import find_line, has_manifest
from handlers.platform.run_records import read_last_attempt
from handlers.platform.tags import dataset_of_model
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import RecordBatch
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.contracts.outcomes import BlobState, rule_of_batch
from orchestrations.errors import InvalidEvent, LandfallError
from orchestrations.names import training_of

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties

logger = logging.getLogger(__name__)

# Event Grid drops an event after a day, so no decision is later than that.
EVENT_DELAY = timedelta(days=1)
# Last-Modified has whole seconds, and clocks differ.
CLOCK_SKEW = timedelta(seconds=2)


class ExplainQuestion(Parameters):
    """Parameters of GET /api/explain."""

    blob: str
    """The blob's URL, or container/path."""
    model: str | None = None
    """A version of the pipeline's model."""


def explain(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    question: ExplainQuestion,
    *,
    now: datetime,
) -> Explanation:
    """Explain the state of a blob: its batch, dataset version and run, with the reasons.

    The sources are the blob's properties, the manifests, the quarantine, the records of batches,
    and the event log, whose entries are optional. `in_model` is set if the request names a model.

    Raises:
        Problem: 400, the address is not one of a blob.
    """
    try:
        container, name = parse_blob_address(question.blob, clients.blobs.url)
    except InvalidEvent as error:
        raise invalid_request(str(error), where="blob") from None
    pipeline = watching(pipelines.values(), container, name)
    blob = f"{container}/{name}"
    if pipeline is None:
        places = ", ".join(f"{p.source.container}/{p.source.prefix}" for p in pipelines.values())
        return Explanation(
            blob=blob,
            pipeline=None,
            partition=None,
            state="unwatched",
            reason=f"no pipeline watches this place; watched are: {places}",
            events=[],
            models=[],
        )
    inquiry = _Inquiry(clients, pipeline, name, now)
    partition = pipeline.source.partition_of(inquiry.path)
    answer = inquiry.answer()
    version = answer.get("dataset_version")
    models = inquiry.models(version)
    trained = [each for each in models or () if each.dataset_version == version]
    model = ModelVersion(name=pipeline.model.name, version=trained[0].version) if trained else None
    return Explanation(
        blob=blob,
        pipeline=pipeline.name,
        partition=None if partition is None else partition.key,
        **answer,
        events=inquiry.events(),
        models=models,
        model=model,
        in_model=None
        if question.model is None
        else _find_in_model(clients, pipeline, inquiry.path, question.model),
    )


class _Inquiry:
    """The data about one blob, read lazily."""

    def __init__(self, clients: Clients, pipeline: Pipeline, blob: str, now: datetime) -> None:
        self._clients = clients
        self._pipeline = pipeline
        self._blob = blob
        self._now = now
        self.path = blob.removeprefix(pipeline.source.prefix)
        partition = pipeline.source.partition_of(self.path)
        is_batch = pipeline.source.batch == "partition"
        self._zone = partition.key if is_batch and partition is not None else None
        self._batches = BatchSearch(clients, pipeline, self._zone)

    def answer(self) -> dict[str, Any]:  # noqa: PLR0911 - one return for each state
        """The state, its reason, and the batch that they follow from."""
        reason = self._why_filtered()
        if reason is not None:
            return _answer("filtered", reason)
        if self._properties is None:
            return self._missing()
        if self._pipeline.source.is_marker(self.path):
            return self._marker()
        forgotten = read_contents(self._clients).get(content_of(self._properties))
        if forgotten is not None:
            return _answer("left-out", f"its content was forgotten by request {forgotten}")
        etag = normal_etag(self._properties.etag)
        refused = read_quarantine(self._clients, self._pipeline.name).get((self.path, etag))
        batch = self._batch()
        if batch is not None:
            answer = self._explain_batch(batch)
            if refused is not None:
                answer["reason"] += f"; left out of later batches: {refused}"
            return answer
        if refused is not None:
            return _answer("quarantined", f"left out since a trainer refused it: {refused}")
        return self._not_frozen()

    def events(self) -> list[ExplainedEvent]:
        """The events of the blob in the event log, oldest first, without duplicates."""
        since = self._now - EVENT_DELAY
        until = self._now
        if self._properties is not None:
            since = self._properties.last_modified - CLOCK_SKEW
            until = min(since + EVENT_DELAY, self._now)
        entries = event_records.read_log(
            self._clients.records, self._pipeline.name, self._blob, since=since, until=until
        )
        first = {entry.event_id: entry for entry in reversed(list(entries))}
        return [ExplainedEvent.model_validate(entry) for entry in reversed(first.values())]

    def models(self, dataset_version: str | None) -> list[SeenBy] | None:
        """The models that were trained on the blob; None if Azure ML is not available."""
        try:
            return seen_by(
                self._clients,
                self._pipeline,
                self.path,
                is_current=self._is_current,
                dataset_version=dataset_version,
            )
        except (AzureError, LandfallError) as error:
            logger.warning("could not read the models of %s: %s", self._blob, type(error).__name__)
            return None

    def _why_filtered(self) -> str | None:
        source = self._pipeline.source
        unsafe = why_unsafe(self._blob)
        if unsafe is not None:
            return unsafe
        if source.is_marker(self.path):
            return None
        if source.partitions is not None and source.partition_of(self.path) is None:
            return f"is in no partition that source.partitions defines: {source.partitions}"
        found = self._properties
        if found is not None and is_directory_stub(self.path, found.size, found.metadata):
            return "stands for a folder"
        if not source.takes(self.path):
            return f"matches no pattern of source.include: {source.include}"
        return None

    def _batch(self) -> RecordBatch | None:
        """The batch that trained on the blob, or else the first that has it."""
        held: RecordBatch | None = None
        for batch in self._batches_since():
            if not self._is_in(batch):
                continue
            if not rule_of_batch(batch.result.outcome).is_held:
                return batch
            held = held or batch
        if held is None:
            return None
        # The batch that was trained on may be after many held ones.
        last = last_batch(self._clients, self._pipeline.name, held.dataset.partition)
        trained = None if last is None else last.last_trained
        if trained is None or trained.frozen_at <= held.dataset.frozen_at:
            return held
        # The times in the records' names are rounded down to milliseconds.
        moment = trained.frozen_at - timedelta(milliseconds=1)
        batch = next(self._batches.since(moment), held)
        return batch if self._is_in(batch) else held

    def _missing(self) -> dict[str, Any]:
        for batch in self._batches.newest():
            if self._line(batch) is not None:
                version = batch.dataset.version
                return _answer(
                    "missing",
                    f"not in the zone now; it was part of dataset version {version}",
                    batch,
                )
        return _answer(
            "missing",
            f"not in the zone now, and in none of the last {BATCHES_SEARCHED} batches",
        )

    def _marker(self) -> dict[str, Any]:
        assert self._properties is not None
        written = self._properties.last_modified
        for batch in self._batches_since():
            if batch.marker_at == written and batch.dataset.blobs:
                answer = self._explain_batch(batch)
                answer["reason"] = f"the marker of this batch: {answer['reason']}"
                return answer
        return _answer("pending", "a marker; no batch was frozen since it was written")

    def _explain_batch(self, batch: RecordBatch) -> dict[str, Any]:
        version, run = batch.dataset.version, batch.result.run
        found_by = "" if self.events() else (
            f"; no event of it was kept: the listing found it (opened by {batch.opened_by})"
        )  # fmt: skip
        state = rule_of_batch(batch.result.outcome).explained_as or "left-out"
        match batch.result.outcome:
            case "started":
                reason = f"part of dataset version {version}, which started run {run}{found_by}"
                ended = find_end_by_check(self._clients, self._pipeline.name, version)
                if ended is not None:
                    state = "held" if ended.stage == "data-check" else state
                    reason += f"; it did not train: {ended.message}"
                reason += self._verdict(str(run))
            case "duplicate":
                why = batch.result.reason
                why = f", which run {run} was started for" if why is None else f"; {why}"
                reason = f"the zone's content is dataset version {version}{why}{found_by}"
            case "held":
                held = read_held(self._clients, self._pipeline.name, batch.dataset)
                why = ", and newer batches since" if held is None else f": {held.message}"
                reason = f"part of dataset version {version}, which is held{why}"
            case "only-deletions":
                reason = (
                    f"part of dataset version {version}, a batch that only lost blobs: "
                    "source.deletions is ignore"
                )
            case "empty" | "overdue" | "invalid-manifest" | "not-deployed" as outcome:
                reason = f"part of dataset version {version}, whose batch ended as {outcome}"
            case _:
                assert_never(batch.result.outcome)
        return _answer(state, reason, batch)

    def _verdict(self, run: str) -> str:
        """What the gate said of the model, to append to a reason; of the round's last attempt."""
        record = read_last_attempt(self._clients, self._pipeline.name, training_of(run))
        return "" if record is None or record.judged is None else f"; {record.judged.message}"

    def _not_frozen(self) -> dict[str, Any]:
        assert self._properties is not None
        since = [each for each in self._batches_since() if each.dataset.blobs]
        if since and self._pipeline.selects_partitions:
            return _answer(
                "left-out",
                "no batch since has taken its partition: dataset.newest_partitions or "
                "dataset.last_days leaves it out, or the partition is a batch that has not settled",
                since[-1],
            )
        source = self._pipeline.source
        kind = "marker" if source.manifest is None else "manifest"
        wait = (
            f"it waits for the {kind} {source.last_blob}"
            if source.last_blob is not None
            else f"the zone must be quiet for {self._pipeline.settle.quiet_seconds:g} s"
        )
        return _answer("pending", f"no batch with it was frozen yet: {wait}{self._troubles()}")

    def _troubles(self) -> str:
        """The open troubles of the blob's zone, to append to a reason."""
        troubles = read_troubles(self._clients, self._pipeline.name).get(self._pipeline.name, {})
        return "".join(
            f"; {sentences.describe_trouble(self._zone, each)}"
            for each in troubles.get(self._zone, ())
        )

    def _is_in(self, batch: RecordBatch) -> bool:
        """Whether a batch's manifest has the blob with its current content.

        The MD5 counts, too: if content is written again, the manifest keeps its earlier ETag.
        """
        line = self._line(batch)
        return line is not None and self._is_current(line)

    def _line(self, batch: RecordBatch) -> ManifestLine | None:
        """The blob's line in a batch's manifest, if there are both."""
        if not batch.dataset.blobs:
            return None
        try:
            return find_line(self._clients, batch.dataset, self.path)
        except ResourceNotFoundError:  # of a held batch that a newer one has replaced
            return None

    def _is_current(self, line: ManifestLine) -> bool:
        if self._properties is None:
            return False
        md5 = self._properties.content_settings.content_md5
        same_content = line.md5 is not None and md5 is not None and line.md5 == bytes(md5).hex()
        return line.etag == normal_etag(self._properties.etag) or same_content

    def _batches_since(self) -> Iterator[RecordBatch]:
        """The first batches that were frozen after the blob's last change."""
        assert self._properties is not None
        return self._batches.since(self._properties.last_modified - CLOCK_SKEW)

    @cached_property
    def _properties(self) -> BlobProperties | None:
        container = self._pipeline.source.container
        try:
            return self._clients.blobs.get_blob_client(container, self._blob).get_blob_properties()
        except ResourceNotFoundError:
            return None


def _answer(state: BlobState, reason: str, batch: RecordBatch | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = {"state": state, "reason": reason}
    if batch is not None:
        answer |= {
            "batch": batch.batch,
            "opened_by": batch.opened_by,
            "dataset_version": batch.dataset.version,
            "run": batch.result.run,
        }
    return answer


def _find_in_model(clients: Clients, pipeline: Pipeline, path: str, version: str) -> InModel:
    """Whether the dataset version of a model contains the path."""
    dataset_version = dataset_of_model(clients, pipeline.model.name, version)
    line, contained, reason = None, None, "Landfall registered no such version"
    if dataset_version is not None:
        dataset = claimed_dataset(clients, pipeline.name, dataset_version)
        if dataset is None or not has_manifest(clients, dataset):
            reason = "the manifest of its dataset version was removed"
        else:
            line = find_line(clients, dataset, path)
            contained = line is not None
            reason = "in that dataset version" if contained else "not in that dataset version"
    return InModel(
        version=version,
        dataset_version=dataset_version,
        etag=None if line is None else line.etag,
        contained=contained,
        reason=reason,
    )
