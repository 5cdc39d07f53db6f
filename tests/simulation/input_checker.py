"""Invariants of the inputs of runs: their files, compute and data, and of foreign events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.errors import DataRejected, InvalidResults, QuotaExceeded
from tests.simulation.evidence import Evidence, Run
from tests.simulation.fakes.training import RECORDS_CONTAINER
from tests.simulation.people import LARGE, QUEUED_LIMIT_SECONDS
from tests.simulation.scheduler import START
from tests.simulation.story import JobEnd, Shortage

# Trainers' mistakes that no other attempt can help, and what the run is rejected for then.
REJECTED_FOR: dict[str, tuple[JobEnd, ...]] = {
    DataRejected.__name__: ("rejects a file", "rejects all files"),
    InvalidResults.__name__: (
        "leaves no metrics",
        "leaves a null metric",
        "leaves a wrong comparison",
    ),
}


SECTIONS = ("source", "settle", "dataset", "gate", "model", "retry", "notify", "deploy")
"""Sections of `pipeline.yml` that no redrive changes."""
CHANGED_BY_PEOPLE = ("compute", "limits")
"""Sections that a redrive may change."""


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


def promoted_models_are_above_the_floor(evidence: Evidence) -> Iterator[str]:
    """The floor is that of the gate in the run's frozen configuration."""
    for model in evidence.models:
        run = evidence.runs.get(model.tags["landfall.run"])
        if run is None or run.state != "succeeded":
            continue
        floor = evidence.requests[run.id].pipeline.gate.floor
        metrics = run.instance.custom_status["metrics"]
        if metrics["accuracy"] < floor:
            yield f"model {model.version} of {run.id} has {metrics}, the floor is {floor}"


def models_are_those_that_were_judged(evidence: Evidence) -> Iterator[str]:
    """A model whose files are written again while it is judged is not registered."""
    for model in evidence.models:
        if model.tags["landfall.run"] in evidence.world.acts.replaced:
            yield f"model {model.version} has other files than those that were judged"


def promoted_models_hold_on_every_slice(evidence: Evidence) -> Iterator[str]:
    """A model that is better on the whole, and breaks a slice, does not replace a champion.

    Neither does one whose comparison contradicts itself.
    """
    for model in evidence.models:
        run = evidence.runs.get(model.tags["landfall.run"])
        life = evidence.world.cluster.lives.get(model.tags["landfall.run"])
        if run is None or life is None or model.tags.get("landfall.role") == "challenger":
            continue
        is_guarded = bool(evidence.requests[run.id].pipeline.gate.slices)
        is_broken = life.end == "breaks a slice" and "landfall.champion" in model.tags
        if (is_broken and is_guarded) or life.end == "leaves a wrong comparison":
            yield f"model {model.version} of {run.id} was promoted, and its job {life.end}"


def refusals_for_a_slice_say_which(evidence: Evidence) -> Iterator[str]:
    """With the numbers, in the status, and so in the notification."""
    for run in evidence.runs.values():
        status = run.instance.custom_status or {}
        if status.get("verdict") != "slice-fell":
            continue
        life = evidence.world.cluster.lives[run.id]
        told = "label:7 fell by 30 points (p < 0.0001, n = 200, gate.slices allows 5 points)"
        if life.end != "breaks a slice" or run.state != "not_promoted":
            yield f"{run.id} is {run.state} for a slice, and its job {life.end}"
        for text in (status["reason"], *_alerts_about(evidence, run, "not_promoted")):
            if told not in text:
                yield f"{run.id} does not say which slice fell: {text}"


def _alerts_about(evidence: Evidence, run: Run, kind: str) -> Iterator[str]:
    for alert in evidence.alerts:
        if alert.subject == kind and json.loads(alert.content)["data"]["id"] == run.id:
            yield alert.content.decode()


def changes_of_a_redrive_are_made(evidence: Evidence) -> Iterator[str]:
    """A person's changes are in the run, in its job, and in its lineage."""
    for name, change in evidence.world.acts.changed.items():
        if name not in evidence.runs:
            continue  # every_run_ends_in_one_state
        request = evidence.requests[name]
        life = evidence.world.cluster.lives.get(name)
        lineage = request.redrive
        is_made = lineage is not None
        if lineage is None:
            pass
        elif change == "compute":
            on_it = life is None or life.cluster == LARGE["cluster"]
            is_made = on_it and request.pipeline.compute == [ComputeOption.model_validate(LARGE)]
        elif change == "limits":
            is_made = request.pipeline.limits.queued_seconds == QUEUED_LIMIT_SECONDS
        elif change == "attempts":
            is_made = lineage.last_attempt is not None
        elif change == "job":
            is_made = lineage.job is not None
        else:
            is_made = bool(lineage.files_left_out)
        if not is_made:
            yield f"{name} was redriven with a change of {change}, and has {lineage}"


def jobs_run_where_there_is_quota(evidence: Evidence) -> Iterator[str]:
    """No job is submitted to a cluster that was deleted before its run began."""
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.run)
        if run is None:
            continue
        submitted = life.states[0][0]
        # An instance that was started again is younger than its job.
        began = min((run.instance.created_at - START).total_seconds(), submitted)
        for item in _shortages(evidence):
            lasts = item.at <= began and submitted < item.at + item.seconds
            if lasts and life.cluster in item.clusters:
                yield f"job {life.name} was submitted to {life.cluster}, which has no quota"


def rejections_have_their_cause(evidence: Evidence) -> Iterator[str]:
    """A run is rejected for its trainer's mistake, a replaced model, or a shortage everywhere."""
    for run in evidence.runs.values():
        if run.state != "rejected":
            continue
        error = run.instance.custom_status["error"]
        ends = {it.end for it in evidence.world.cluster.lives.values() if it.run == run.id}
        if error["type"] == QuotaExceeded.__name__:
            if not _was_short(evidence, run):
                yield f"{run.id} was rejected for want of quota, and there was some"
        elif run.id in evidence.world.acts.replaced:
            if "not the model that was judged" not in error["message"]:
                yield f"{run.id} was rejected for another reason: {error['message'][:200]}"
        elif not ends & set(REJECTED_FOR.get(error["type"], ())):
            yield f"{run.id} was rejected: {error['type']}: {error['message'][:200]}"


def _was_short(evidence: Evidence, run: Run) -> bool:
    began = (run.instance.created_at - START).total_seconds()
    ended = (run.instance.last_updated_at - START).total_seconds()
    short = {
        cluster
        for item in _shortages(evidence)
        if item.at <= ended and began <= item.at + item.seconds
        for cluster in item.clusters
    }
    stages = evidence.requests[run.id].pipeline.jobs.values()
    options = (compute[min(run.attempt, len(compute)) - 1 :] for _, compute in stages)
    return any(all(option.cluster in short for option in each) for each in options)


def _shortages(evidence: Evidence) -> list[Shortage]:
    return [item for item in evidence.world.story.items if isinstance(item, Shortage)]


def data_that_is_copied_never_changes(evidence: Evidence) -> Iterator[str]:
    """A job that reads copies reads what was frozen, unless a part of it was forgotten."""
    for life in evidence.world.cluster.lives.values():
        request = evidence.requests.get(life.run)
        if not life.found_changed or request is None or request.dataset.copies is None:
            continue
        lines = evidence.manifest(request.dataset.version)
        if not any((line.md5, line.size) in evidence.forgotten for line in lines):
            yield f"job {life.name} found its data changed, which is copied"


def foreign_job_events_are_alerted(evidence: Evidence) -> Iterator[str]:
    """Every event of Azure ML that is not understood is counted in an alert of its cause."""
    alerted = sum(
        json.loads(message.content)["data"]["count"]
        for message in evidence.alerts
        if message.subject == "events-rejected"
    )
    malformed = evidence.world.topics.malformed
    if malformed and not alerted:
        yield f"{malformed} events of Azure ML were not understood, and {alerted} are alerted"


INVARIANTS_OF_INPUTS = (
    one_batch_has_one_configuration,
    runs_use_the_files_of_their_freeze,
    promoted_models_are_above_the_floor,
    models_are_those_that_were_judged,
    promoted_models_hold_on_every_slice,
    refusals_for_a_slice_say_which,
    changes_of_a_redrive_are_made,
    jobs_run_where_there_is_quota,
    rejections_have_their_cause,
    data_that_is_copied_never_changes,
    foreign_job_events_are_alerted,
)
