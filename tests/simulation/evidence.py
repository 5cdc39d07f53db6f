"""The outcome of a simulated week, read from the fakes themselves and not through the app."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import ClaimedRun, RecordBatch
from orchestrations.contracts.manifest import ManifestLine, copy_name, decode_line
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import RunInput
from orchestrations.landing.landing import landing
from orchestrations.rollout.rollout import rollout
from orchestrations.training.retraining import retraining
from tests.fakes.storage_account import Blob
from tests.simulation.fakes.training import RECORDS_CONTAINER
from tests.simulation.scheduler import START
from tests.simulation.subjects import Rollout, Run, input_of
from tests.simulation.task_hub import HubInstance
from tests.unit.orchestrations.examples import version_of

if TYPE_CHECKING:
    from tests.simulation.releases import Release
    from tests.simulation.world import World

Partition = str | None
MANIFEST_DEPTH = 3
"""Slashes in the name of a version's manifest; one of new files lies deeper."""


def _content(blob: Blob) -> tuple[str | None, int]:
    return blob.md5.hex(), len(blob.content)


class Evidence:
    """The records of one simulated world after its end."""

    def __init__(self, world: World) -> None:
        self.world = world

    def records(self, prefix: str) -> dict[str, Any]:
        """Name → document of the records below a prefix."""
        container = self.world.account.container(RECORDS_CONTAINER)
        return {blob.name: json.loads(blob.content) for blob in container.below(prefix)}

    def written_at(self, name: str) -> float | None:
        """When a record was last written, in seconds; None if there is none."""
        blob = self.world.account.container(RECORDS_CONTAINER).blobs.get(name)
        return None if blob is None else (blob.last_modified - START).total_seconds()

    @cached_property
    def landings(self) -> list[HubInstance]:
        return [
            each
            for each in self.world.hub.instances.values()
            if each.execution.name == landing.__name__
        ]

    @cached_property
    def runs(self) -> dict[str, Run]:
        """By id."""
        found: dict[str, Run] = {}
        for name, instance in self.world.hub.instances.items():
            if instance.execution.name != retraining.__name__:
                continue
            _, version, attempt = name.rsplit("-", 2)
            told = instance.custom_status
            found[name] = Run(instance, name, version, int(attempt), told and told["state"])
        self._add_kinds(found)
        return found

    @cached_property
    def rollouts(self) -> dict[str, Rollout]:
        """By id."""
        found: dict[str, Rollout] = {}
        for name, instance in self.world.hub.instances.items():
            if instance.execution.name == rollout.__name__:
                told = instance.custom_status
                version = name.partition("_")[0].rpartition("-")[2]
                found[name] = Rollout(instance, name, version, told and told["state"])
        self._add_kinds(found)
        return found

    def rollouts_of(self, endpoint: str, version: str) -> list[Rollout]:
        """The rollouts of a model version: the first one, and those that people started."""
        name = f"rollout-{endpoint}-{version}"
        return [each for each in self.rollouts.values() if each.id.partition("_")[0] == name]

    def _add_kinds(self, found: Mapping[str, Run | Rollout]) -> None:
        for channel, messages in (
            ("event_grid", self.world.events),
            ("webhook/model-watch", self.world.webhooks),
            ("webhook/caller", self.world.callers),
            ("service_bus", [(each.message_id, "") for each in self.alerts]),
        ):
            for message_id, _ in messages:
                subject, _, kind = message_id.rpartition(":")
                if subject in found:
                    found[subject].kinds.setdefault(channel, set()).add(kind)

    @cached_property
    def requests(self) -> dict[str, RunRequest]:
        """Run → what it was started with."""
        return {
            name: RunInput.from_dict(input_of(run.instance)).request
            for name, run in self.runs.items()
        }

    @cached_property
    def redriven(self) -> dict[str, str]:
        """Dead-lettered run → the attempt of its redrive with a change."""
        found: dict[str, str] = {}
        for name, request in self.requests.items():
            earlier = None if request.redrive is None else self.runs.get(request.redrive.run)
            # Later attempts have the same lineage.
            if earlier is not None and earlier.attempt == self.runs[name].attempt - 1:
                found[earlier.id] = name
        return found

    @cached_property
    def alerts(self) -> list[Any]:
        return self.world.broker.published.get("ops-alerts", [])

    def data_of(self, alert: Any) -> Any:
        """The data of an alert's document."""
        return json.loads(alert.content)["data"]

    def landings_told(self, kind: str) -> set[str]:
        """The landings about which operators have an alert of a kind."""
        return {self.data_of(it)["landing"] for it in self.alerts if it.subject == kind}

    @cached_property
    def letters(self) -> Counter[str]:
        """Ids of what lies dead-lettered on `rejected-runs`."""
        queue = self.world.broker.dead_letters("rejected-runs")
        return Counter(message.message_id for message in queue.messages)

    @cached_property
    def rejected(self) -> set[str]:
        """Ids of what `rejected-runs` ever took, redriven or not."""
        return set(self.world.broker.sent.get("rejected-runs", []))

    @cached_property
    def batches(self) -> list[RecordBatch]:
        """All batches of the story's pipeline, in order of time."""
        name = self.world.pipeline.name
        return [each for each in self.batches_of_all if each.result.pipeline == name]

    @cached_property
    def batches_of_all(self) -> list[RecordBatch]:
        """The batches of all pipelines; the records of superseded held ones were deleted."""
        prefix = "batches/"
        deleted = self.world.account.container(RECORDS_CONTAINER).deleted
        documents = self.records(prefix) | {
            name: json.loads(blob.content)
            for name, blob in deleted.items()
            if name.startswith(prefix)
        }
        return [RecordBatch.from_dict(documents[name]) for name in sorted(documents)]

    @cached_property
    def claims(self) -> dict[str, Any]:
        """Round of training → claim."""
        prefix = f"dataset-claims/{self.world.pipeline.name}/"
        return {
            name.removeprefix(prefix).removesuffix(".json"): document["claim"]
            for name, document in self.records(prefix).items()
        }

    @cached_property
    def claimed(self) -> dict[str, RunRequest]:
        """Round of training → what it was claimed for."""
        return {
            ClaimedRun.from_dict(document).request.training: ClaimedRun.from_dict(document).request
            for document in self.records(f"dataset-claims/{self.world.pipeline.name}/").values()
        }

    @cached_property
    def ended_by_check(self) -> dict[str, str]:
        """Round of training → when a check ended it."""
        prefix = f"ended-by-check/{self.world.pipeline.name}/"
        return {
            name.removeprefix(prefix).removesuffix(".json"): document["at"].replace("Z", "+00:00")
            for name, document in self.records(prefix).items()
        }

    @cached_property
    def models(self) -> list[Any]:
        return list(self.world.workspace.models.values())

    @cached_property
    def decided_events(self) -> set[str]:
        """Ids of the events that are in the event log."""
        container = self.world.account.container(RECORDS_CONTAINER)
        return {
            json.loads(line)["event_id"]
            for blob in container.below("events/")
            for line in blob.content.splitlines()
        }

    @cached_property
    def run_index(self) -> dict[str, list[str]]:
        """Run → its groups in the index, except `all`."""
        found: dict[str, list[str]] = defaultdict(list)
        for blob in self.world.account.container(RECORDS_CONTAINER).below("run-index/"):
            _, group, *_, key = blob.name.split("/")
            if group != "all" and blob.name.count("/") == 3:
                found[key.partition("_")[2]].append(group)
        return found

    @cached_property
    def run_steps(self) -> dict[str, list[str]]:
        """Run → the states of its record, in order."""
        return {
            document["status"]["id"]: [step["state"] for step in document["steps"]]
            for name, document in self.records("runs/").items()
            if name.endswith("/record.json")
        }

    @cached_property
    def quarantine(self) -> set[tuple[str, str]]:
        """(path, ETag) of every file that is left out."""
        prefix = f"quarantine/{self.world.pipeline.name}/"
        return {
            (entry["path"], entry["etag"])
            for entries in self.records(prefix).values()
            for entry in entries
        }

    @cached_property
    def forgotten(self) -> dict[tuple[str | None, int], float]:
        """MD5 and size of each forgotten content → second by which it was kept as forgotten."""
        container = self.world.account.container(RECORDS_CONTAINER)
        kept = container.blobs.get("forgotten/contents.json")
        if kept is None:
            return {}
        at = (kept.last_modified - START).total_seconds() + 1  # a blob's times have whole seconds
        return {(md5, size): at for md5, size, _ in json.loads(kept.content)}

    def releases(self, since: datetime, until: datetime) -> list[Release]:
        """The releases in force between two moments."""
        all_of_them = self.world.releases
        following = [each.at for each in all_of_them[1:]]
        return [
            each
            for each, replaced_at in zip(all_of_them, [*following, None], strict=True)
            if each.at <= until and (replaced_at is None or replaced_at >= since)
        ]

    @cached_property
    def manifests(self) -> dict[str, list[ManifestLine]]:
        """Dataset version → its lines."""
        prefix = f"manifests/{self.world.pipeline.name}/"
        container = self.world.account.container(RECORDS_CONTAINER)
        return {
            blob.name.split("/")[2]: [decode_line(line) for line in blob.content.splitlines()]
            for blob in container.below(prefix)
            if blob.name.endswith("/manifest.jsonl") and blob.name.count("/") == MANIFEST_DEPTH
        }

    def manifest(self, version: str) -> list[ManifestLine]:
        """The lines of a dataset version; of one that is put together from parts, none."""
        return self.manifests.get(version, [])

    def lay_still(self, request: RunRequest, until: datetime) -> set[str]:
        """Paths that belong to a run's dataset, and did not change from its freeze to a moment."""
        source = request.pipeline.source
        frozen_at, end = (
            (each - START).total_seconds() for each in (request.dataset.frozen_at, until)
        )
        before = [each for each in self.world.zone if each.at < frozen_at - 1.0]
        during = [each for each in self.world.zone if frozen_at - 1.0 <= each.at <= end]
        if not before:
            return set()
        still = {
            name: blob
            for name, blob in before[-1].blobs.items()
            if all(each.blobs.get(name) == blob for each in during)
        }
        found: set[str] = set()
        for name, blob in still.items():
            path = name.removeprefix(source.prefix)
            partition = source.partition_of(path) if source.batch == "partition" else None
            key = None if partition is None else partition.key
            is_ours = source.takes(path) and key == request.dataset.partition
            is_left_out = (path, blob.etag) in self.quarantine or _content(blob) in self.forgotten
            if is_ours and not is_left_out:
                found.add(path)
        return found

    def content(self, pipeline: Pipeline, blobs: dict[str, Blob]) -> dict[Partition, list[Blob]]:
        """The data blobs of a zone, per batch."""
        source = pipeline.source
        found: dict[Partition, list[Blob]] = defaultdict(list)
        for name, blob in sorted(blobs.items()):
            path = name.removeprefix(source.prefix)
            if source.takes(path):
                partition = source.partition_of(path) if source.batch == "partition" else None
                found[None if partition is None else partition.key].append(blob)
        return found

    def versions(self, pipeline: Pipeline, blobs: list[Blob]) -> set[str]:
        """The dataset versions of some blobs: all of them, and without those in quarantine."""
        prefix = pipeline.source.prefix
        lines = [
            ManifestLine(
                path=blob.name.removeprefix(prefix),
                size=len(blob.content),
                md5=blob.md5.hex(),
                etag=blob.etag,
            )
            for blob in blobs
        ]
        if pipeline.dataset.freeze == "copy":
            lines = [replace(line, file=copy_name(line)) for line in lines]
        left = [line for line in lines if (line.path, line.etag) not in self.quarantine]
        kept = [line for line in left if (line.md5, line.size) not in self.forgotten]
        return {version_of(lines), version_of(left), version_of(kept)}
