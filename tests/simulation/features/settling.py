"""When a zone is whole, and the files by which it is frozen and trained on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.landing import freezing
from handlers.platform.configuration import configurations
from handlers.platform.settings import Settings
from handlers.training import jobs
from orchestrations.landing import settling
from orchestrations.names import landing_instance
from tests.simulation.fakes.training import RECORDS_CONTAINER
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.features.pausing import paused_seconds
from tests.simulation.folders import PIPELINES_FOLDER
from tests.simulation.planting import body, round_without
from tests.simulation.scheduler import START
from tests.simulation.story import DAY, HOUR, Deploy, LoseEvent, Mark, Upload
from tests.simulation.weeks import FIRST, UPLOAD, UPLOADED_AT, first_job, quiet_week

if TYPE_CHECKING:
    from handlers.platform.clients import Clients
    from orchestrations.configuration.pipeline import Pipeline
    from orchestrations.contracts.base import Contract
    from orchestrations.contracts.datasets import Configuration, FreezeManifest
    from orchestrations.contracts.landing import RecordBatch
    from tests.simulation.evidence import Evidence
    from tests.simulation.releases import Release
    from tests.simulation.subjects import Run
    from tests.simulation.world import Snapshot


# A zone is listed without any event once a day; reconciliation, and a run, come on top.
NOTICED_AFTER_SECONDS = 2.5 * DAY
SECTIONS = ("source", "settle", "dataset", "gate", "model", "retry", "notify", "deploy")
"""Sections of `pipeline.yml` that no redrive changes."""
CHANGED_BY_PEOPLE = ("compute", "limits")
"""Sections that a redrive may change."""


def _is_whole(batch: RecordBatch, pipeline: Pipeline) -> bool:
    newest, frozen_at, settle = batch.dataset.newest, batch.dataset.frozen_at, pipeline.settle
    assert newest is not None, "an empty batch is not asked about"
    if pipeline.source.marker is not None:
        return batch.marker_at is not None and batch.marker_at >= newest
    is_quiet = newest + timedelta(seconds=settle.quiet_seconds) <= frozen_at
    deadline = batch.opened_at + timedelta(seconds=settle.maximum_wait_seconds)
    return is_quiet or deadline <= frozen_at


def what_is_trained_on_was_whole(evidence: Evidence) -> Iterator[str]:
    """A batch was quiet, marked, at its maximum wait, or requested when it was frozen."""
    for batch in evidence.batches:
        newest, frozen_at = batch.dataset.newest, batch.dataset.frozen_at
        if newest is None or batch.opened_by == "request":
            continue
        # The rules of any release that was in force while the batch settled.
        if not any(
            _is_whole(batch, each.pipeline)
            for each in evidence.releases(batch.opened_at, frozen_at)
        ):
            yield f"batch {batch.batch} was not whole at {frozen_at}: newest {newest}"


def _under_releases(
    evidence: Evidence, since: float, until: float
) -> Iterator[tuple[Release, float, float]]:
    """The parts of a span of time, each with the release that was in force."""
    releases = evidence.world.releases
    starts = [(each.at - START).total_seconds() for each in releases]
    for release, began, ended in zip(releases, starts, [*starts[1:], until], strict=True):
        if began < until and ended > since:
            yield release, max(began, since), min(ended, until)


def _is_overdue(evidence: Evidence, pipeline: Pipeline, blob: str, snapshot: Snapshot) -> bool:
    """Whether operators were alerted that the blob's batch lacks a newer marker than this one."""
    source = pipeline.source
    is_partitioned = source.batch == "partition"
    partition = source.partition_of(blob.removeprefix(source.prefix)) if is_partitioned else None
    path = source.marker_path(partition)
    if path is None:
        return False
    marker = snapshot.blobs.get(source.prefix + path)
    since = None if marker is None else marker.last_modified.isoformat()
    landing = landing_instance(pipeline.name, None if partition is None else partition.key)
    told = [evidence.data_of(each) for each in evidence.alerts if each.subject == "landing-overdue"]
    return any((each["landing"], each["marker_at"]) == (landing, since) for each in told)


def every_whole_batch_is_accounted_for(evidence: Evidence) -> Iterator[str]:
    """Data that lay still for long was frozen, or operators were alerted to its missing marker."""
    world = evidence.world
    recorded = {batch.dataset.version for batch in evidence.batches}
    end = world.scheduler.time()
    loses_events = any(isinstance(item, LoseEvent) for item in world.story.items)
    for number, snapshot in enumerate(world.zone):
        following = world.zone[number + 1].at if number + 1 < len(world.zone) else end
        for release, since, until in _under_releases(evidence, snapshot.at, following):
            if until - since - paused_seconds(evidence, since, until) < NOTICED_AFTER_SECONDS:
                continue
            pipeline = release.pipeline
            batches = evidence.content(pipeline, snapshot.blobs)
            # Only events lead to older partitions: reconciliation does not list them.
            # A release has no event.
            is_told = since == snapshot.at and not loses_events
            watched = list(batches) if is_told else sorted(batches, key=str)[-3:]
            for partition in watched:
                blobs = batches[partition]
                if evidence.versions(pipeline, blobs) & recorded:
                    continue
                if _is_overdue(evidence, pipeline, blobs[0].name, snapshot):
                    continue
                yield (
                    f"what {partition or 'the zone'} held from {since:.0f} s to {until:.0f} s was "
                    f"never frozen: {[blob.name for blob in blobs]}"
                )


def _claimed_at(evidence: Evidence, run: Run) -> Any:
    name = f"dataset-claims/{evidence.world.pipeline.name}/{run.version}.json"
    container = evidence.world.account.container(RECORDS_CONTAINER)
    return container.blobs[name].last_modified + timedelta(seconds=1)


def one_batch_has_one_configuration(evidence: Evidence) -> Iterator[str]:
    """The listing, the copies, the claim and the model's lineage are by the files of the run."""
    for run in evidence.runs.values():
        request = evidence.requests[run.id]
        if run.attempt > 1 or run.version not in evidence.claims:
            continue
        listed = evidence.manifest(request.dataset.version)
        source = request.pipeline.source
        foreign = [line.path for line in listed if not source.takes(line.path)]
        if foreign:
            yield f"{run.id} lists {foreign}, which its files leave out: {source.include}"
        missing = evidence.lay_still(request, _claimed_at(evidence, run)) - {
            line.path for line in listed
        }
        if missing:
            yield f"{run.id} lacks {sorted(missing)}, which its files take: {source.include}"
        is_copied = [line.file is not None for line in listed]
        if any(is_copied) != (request.pipeline.dataset.freeze == "copy"):
            yield f"{run.id} has freeze {request.pipeline.dataset.freeze}: {is_copied}"
    for model in evidence.models:
        request = evidence.requests.get(model.tags["landfall.run"])
        wanted = None if request is None else request.configuration
        if wanted is not None and model.tags["landfall.configuration"] != wanted:
            yield f"model {model.version} has files {model.tags['landfall.configuration']}"


def _job_commands(evidence: Evidence) -> dict[str, str]:
    """Configuration → the command of its `job.yml`."""
    prefix = f"configurations/{evidence.world.pipeline.name}/"
    found: dict[str, str] = {}
    for name, document in evidence.records(prefix).items():
        digest = name.removeprefix(prefix).removesuffix(".json")
        lines = document["job"].splitlines()
        (found[digest],) = [
            line.removeprefix("command: ") for line in lines if line.startswith("command: ")
        ]
    return found


def runs_use_the_files_of_their_freeze(evidence: Evidence) -> Iterator[str]:
    """Every attempt has the `pipeline.yml` and `job.yml` that were in force at the freeze."""
    job_files = _job_commands(evidence)
    for run in evidence.runs.values():
        request = evidence.requests[run.id]
        if run.version not in evidence.claims:
            continue
        # The files are read some moments after the listing; a release may come in between.
        claimed_at = _claimed_at(evidence, run)
        in_force = {
            each.digest: each.pipeline
            for each in evidence.releases(request.dataset.frozen_at, claimed_at)
        }
        deployed = in_force.get(request.configuration or "")
        if deployed is None:
            yield f"{run.id} has files {request.configuration}; in force: {list(in_force)}"
            continue
        is_changed = request.redrive is not None
        for section in SECTIONS if is_changed else (*SECTIONS, *CHANGED_BY_PEOPLE):
            ours, theirs = getattr(request.pipeline, section), getattr(deployed, section)
            if ours != theirs:
                yield f"{run.id} has {section} {ours}, its files {theirs}"
        life = evidence.world.cluster.lives.get(run.id)
        wanted = request.job_configuration
        if life is not None and wanted is not None and life.command != job_files[wanted]:
            yield f"job {run.id} runs {life.command!r}, its files say {job_files[wanted]!r}"


def _of_the_first_release(clients: Clients) -> Any:
    values = {**clients.settings.values, "PIPELINES_FOLDER": str(PIPELINES_FOLDER)}
    settings = Settings(values)
    return SimpleNamespace(settings=settings, records=clients.records, blobs=clients.blobs)


def _resolve_as_first_deployed(clients: Clients, name: str) -> Configuration:
    return configurations.resolve_configuration(_of_the_first_release(clients), name)


def _read_deployed_job(clients: Clients, pipeline: str, _configuration: str, file: str) -> str:
    return (clients.settings.pipelines_folder / pipeline / file).read_text("utf-8")


def _list_as_first_deployed(clients: Clients, request: FreezeManifest) -> Contract:
    listed = freezing.freeze_manifest(_of_the_first_release(clients), request)
    deployed = configurations.resolve_configuration(clients, request.pipeline)
    return listed.model_copy(update={"configuration": deployed})


FEATURE = Feature(
    changes={
        "include": Change(
            weight=0.2, sections={"source": {"include": ["[0-9]*[0-3].png", "day=*[0-3].png"]}}
        ),
        "exclude nothing": Change(weight=0.1, sections={"source": {"include": ["*"]}}),
        "marker": Change(weight=0.1, sections={"source": {"marker": "_SUCCESS"}}),
        "no marker": Change(weight=0.1, sections={"source": {"marker": None}}),
        "settle": Change(
            weight=0.2, sections={"settle": {"quiet_seconds": 900, "maximum_wait_seconds": 5_400}}
        ),
    },
    invariants=(
        what_is_trained_on_was_whole,
        every_whole_batch_is_accounted_for,
        one_batch_has_one_configuration,
        runs_use_the_files_of_their_freeze,
    ),
    mistakes={
        "every listing is whole": Mistake(
            plant=lambda: mock.patch.object(settling, "judge_dataset", return_value="whole"),
            found_by=what_is_trained_on_was_whole,
            items=[
                UPLOAD,
                Upload(at=UPLOADED_AT + 290, path="2.png", content="two"),
                LoseEvent(number=2),
            ],
        ),
        "zones are not reconciled": Mistake(
            plant=round_without("check_zones"),
            found_by=every_whole_batch_is_accounted_for,
            items=[UPLOAD, LoseEvent(number=1)],
        ),
        "files of the first release are used": Mistake(
            plant=lambda: mock.patch.object(
                freezing, "resolve_configuration", _resolve_as_first_deployed
            ),
            found_by=runs_use_the_files_of_their_freeze,
            items=[Deploy(at=500, floor=0.9), UPLOAD],
        ),
        "job.yml is read live": Mistake(
            plant=lambda: mock.patch.object(jobs, "read_job_file", _read_deployed_job),
            found_by=runs_use_the_files_of_their_freeze,
            items=[UPLOAD, first_job("loses a node"), Deploy(at=UPLOADED_AT + 320, floor=0.7)],
        ),
        "a batch is listed by older files than its run's": Mistake(
            plant=body("freeze_manifest", _list_as_first_deployed),
            found_by=one_batch_has_one_configuration,
            items=[
                Deploy(at=500, floor=0.7, changes=("include",)),
                UPLOAD,
                Upload(at=UPLOADED_AT, path="9.png", content="nine"),
            ],
        ),
    },
    kept={
        "other files are taken while a batch settles": quiet_week(
            FIRST,
            Upload(at=HOUR, path="9.png", content="nine"),
            Deploy(at=HOUR + 100, floor=0.7, changes=("include",)),
        ),
        "another marker while a batch settles": quiet_week(
            FIRST, Mark(at=HOUR + 1), Deploy(at=HOUR + 100, floor=0.7, changes=("marker",))
        ),
        "other rules of settling for a zone that is never quiet": quiet_week(
            *(Upload(at=HOUR + 200 * n, path="1.png", content=f"{n}") for n in range(40)),
            Deploy(at=HOUR + 100, floor=0.7, changes=("settle",)),
        ),
    },
)
