"""Read and check `pipelines/<name>/pipeline.yml`, its `job.yml` and deployment file; `queues.yml`.

Of a job file (a command, sweep or pipeline job of Azure ML's CLI v2) only what Landfall needs is
checked; Azure ML checks the rest when the job is submitted. The SDK is not imported, since that
takes seconds at every start of the app.
https://learn.microsoft.com/azure/machine-learning/reference-yaml-overview#job
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from handlers.platform.configuration.located_yaml import LocatedYaml, Location, read_text
from handlers.platform.configuration.workspace_files import load_destinations
from orchestrations.configuration.deploy import BatchDeploy, Deploy, OnlineDeploy
from orchestrations.configuration.pipeline import SECTIONS, Pipeline
from orchestrations.configuration.queues import Queues, mismatch
from orchestrations.errors import InvalidPipeline, InvalidQueues, PermanentError

PIPELINE_FILE = "pipeline.yml"
# Keys that earlier releases had, and what to do instead. Kept files and running instances may still
# have them: there they are ignored.
_REMOVED = {
    "minimum_scaling_efficiency": (
        "delete it, and put the options of compute into the order in which runs try them"
    ),
}
QUEUES_FILE = "queues.yml"
_Contradiction = tuple[Location, object, str]
"""The error's location, the value and the reason."""
COMMAND, SWEEP, PIPELINE = "command", "sweep", "pipeline"
RESULTS = "results"
OUTPUTS = frozenset({RESULTS, "checkpoints"})
"""The outputs that Landfall binds."""
BOUND_INPUTS = frozenset({"manifest", "data", "champion", "initial_model"})
_REFERENCE = re.compile(
    r"\$\{\{\s*parent\.(?P<kind>inputs|outputs|jobs)\.(?P<name>[A-Za-z0-9_-]+)"
    r"(?:\.outputs\.(?P<output>[A-Za-z0-9_-]+))?\s*\}\}"
)


def load_pipelines(folder: Path, *, records_container: str) -> Mapping[str, Pipeline]:
    """Every pipeline in `folder`, by name (the name of its own folder).

    Raises:
        InvalidPipeline: a file is unreadable or breaks the schema, its job file is missing or
            lacks something (`check_job_file`), its deployment file does not collect what a guard
            measures, its keys contradict each other or `queues.yml`, it watches Landfall's own
            records container, or two pipelines watch one place; names file, line, key and value.
        InvalidQueues: `queues.yml` breaks its schema; the same.
        InvalidWorkspaces: `workspaces.yml` does.
    """
    files = sorted(folder.glob(f"*/{PIPELINE_FILE}"))
    pipelines = {
        file.parent.name: parse_pipeline(
            file, read_text(file, invalid=InvalidPipeline), records_container=records_container
        )
        for file in files
    }
    _refuse_overlaps(pipelines)
    _refuse_mismatches(files, pipelines, load_queues(folder))
    load_destinations(folder)
    return pipelines


def parse_pipeline(file: Path, text: str, *, records_container: str) -> Pipeline:
    """One pipeline, named after the folder of its file.

    Raises:
        InvalidPipeline: see `load_pipelines`.
    """
    parsed = _parse(file, text)
    for key in _REMOVED.keys() & parsed.document.keys():
        problem = f"was removed: {_REMOVED[key]} (value: {parsed.document[key]!r})"
        raise InvalidPipeline(parsed.problem((key,), problem))
    pipeline = parsed.validate(Pipeline, name=file.parent.name)
    for stage, (name, compute) in pipeline.jobs.items():
        job_file = file.parent / name
        if not job_file.is_file():
            problem = f"{name!r} is not a file in the folder of pipeline.yml"
            raise InvalidPipeline(parsed.problem((*SECTIONS[stage], "job"), problem))
        job_text = read_text(job_file, invalid=InvalidPipeline)
        document = check_job_file(job_file, job_text, nodes={option.nodes for option in compute})
        for parameter in pipeline.parameters if stage == "training" else ():
            problem = _problem_of_parameter(parameter, document, job_text)
            if problem is not None:
                raise InvalidPipeline(parsed.problem(("parameters", parameter), problem))
    deploy = pipeline.deploy
    for key in ("deployment", "smoke_request") if deploy is not None else ():
        name = getattr(deploy, key, None)
        if name is not None and not (file.parent / name).is_file():
            problem = parsed.problem(
                ("deploy", key), f"{name!r} is not a file in the folder of pipeline.yml"
            )
            raise InvalidPipeline(problem)
    if deploy is not None:
        check_deployment_file(file.parent / deploy.deployment, deploy)
    for location, value, problem in _contradictions(pipeline, records_container):
        raise InvalidPipeline(parsed.problem(location, f"{problem} (value: {value!r})"))
    return pipeline


def parse_kept_pipeline(file: Path, text: str) -> Pipeline:
    """A pipeline whose files were checked when they were deployed; only the schema is checked.

    Raises:
        InvalidPipeline: this release does not know the schema.
    """
    return _parse(file, text).validate(Pipeline, name=file.parent.name)


def _parse(file: Path, text: str) -> LocatedYaml:
    shape = "a pipeline is a mapping with the key 'source' and others"
    return LocatedYaml.parse(file, text, shape=shape, invalid=InvalidPipeline)


def _contradictions(pipeline: Pipeline, records_container: str) -> Iterator[_Contradiction]:
    """Check for keys that are valid by themselves but contradict others."""
    source = pipeline.source
    if source.container == records_container:
        yield (
            ("source", "container"),
            source.container,
            "holds Landfall's own records (RECORDS_CONTAINER): let data land in another container",
        )
    if source.marker is None and pipeline.settle.without_marker != "alert":
        yield (
            ("settle", "without_marker"),
            pipeline.settle.without_marker,
            "says what happens without source.marker, which is not set",
        )
    if source.marker is not None and source.manifest is not None:
        yield ("source", "marker"), source.marker, "excludes source.manifest: give one of them"
    if source.partitions is None and source.batch == "partition":
        yield ("source", "batch"), source.batch, "needs source.partitions"
    yield from _contradictions_of_partitions(pipeline)
    yield from _contradictions_of_approve(pipeline)


def _contradictions_of_partitions(pipeline: Pipeline) -> Iterator[_Contradiction]:
    source, dataset = pipeline.source, pipeline.dataset
    for name in ("newest_partitions", "last_days"):
        value = getattr(dataset, name)
        if value is not None and source.manifest is not None:
            yield ("dataset", name), value, "excludes source.manifest, which lists the dataset"
        if value is not None and source.partitions is None:
            yield ("dataset", name), value, "needs source.partitions"
    if dataset.newest_partitions is not None and dataset.last_days is not None:
        yield (
            ("dataset", "last_days"),
            dataset.last_days,
            "excludes dataset.newest_partitions: give one of them",
        )


def _contradictions_of_approve(pipeline: Pipeline) -> Iterator[_Contradiction]:
    deploy = pipeline.deploy
    for number, each in enumerate(pipeline.approve):
        location = ("approve", number, "before")
        if each.before != "registration" and deploy is None:
            yield location, each.before, "needs deploy: without it, no model is rolled out"
        elif each.before == "full-traffic" and isinstance(deploy, BatchDeploy):
            yield location, each.before, "a batch endpoint has one step: write before: rollout"


def _refuse_mismatches(
    files: Sequence[Path], pipelines: Mapping[str, Pipeline], queues: Queues | None
) -> None:
    for file in files:
        found = mismatch(pipelines[file.parent.name], queues)
        if found is not None:
            key, problem = found
            text = read_text(file, invalid=InvalidPipeline)
            raise InvalidPipeline(_parse(file, text).problem(key, problem))


def _refuse_overlaps(pipelines: Mapping[str, Pipeline]) -> None:
    named = sorted(pipelines.items())
    for index, (name, pipeline) in enumerate(named):
        for other_name, other in named[index + 1 :]:
            ours, theirs = pipeline.source, other.source
            if ours.container == theirs.container and (
                ours.prefix.startswith(theirs.prefix) or theirs.prefix.startswith(ours.prefix)
            ):
                raise InvalidPipeline(
                    f"pipelines {name} and {other_name} watch one place: container "
                    f"{ours.container!r}, prefixes {ours.prefix!r} and {theirs.prefix!r}; "
                    "give each a prefix of its own"
                )
            if (
                pipeline.deploy is not None
                and other.deploy is not None
                and pipeline.deploy.endpoint == other.deploy.endpoint
            ):
                raise InvalidPipeline(
                    f"pipelines {name} and {other_name} deploy to one endpoint, "
                    f"{other.deploy.endpoint!r}: give each an endpoint of its own"
                )


def check_deployment_file(file: Path, deploy: Deploy) -> None:
    """Check a deployment file, and that it collects the answers that a guard measures.

    Raises:
        InvalidPipeline: they are not collected, or it is not a mapping (see `located_yaml`); names
            file, line and key.
    """
    parsed = LocatedYaml.parse(
        file,
        read_text(file, invalid=InvalidPipeline),
        shape=f"a deployment is a mapping, as `az ml {deploy.kind}-deployment create` takes it",
        invalid=InvalidPipeline,
    )
    guards = deploy.guards.answers if isinstance(deploy, OnlineDeploy) else []
    wanted = {guard.collection for guard in guards}
    collections = _at(_at(parsed.document, "data_collector"), "collections")
    for name in sorted(wanted):
        enabled = _at(_at(collections, name), "enabled")
        # CLI v2 accepts only the string, not a boolean.
        if not isinstance(enabled, str) or enabled.lower() != "true":
            location = ("data_collector", "collections", name, "enabled")
            problem = "a guard in deploy.guards.answers of pipeline.yml needs the text 'true' here"
            raise InvalidPipeline(parsed.problem(location, problem))


def _at(document: Any, key: str) -> Any:
    return cast("dict[str, Any]", document).get(key) if isinstance(document, dict) else None


def load_queues(folder: Path) -> Queues | None:
    """The queues of a folder of pipelines; None if it has no `queues.yml`.

    Raises:
        InvalidQueues: the file is unreadable or breaks the schema; names file, line, key and value.
    """
    file = folder / QUEUES_FILE
    if not file.exists():
        return None
    text = read_text(file, invalid=InvalidQueues)
    shape = "it is a mapping with the keys 'flavors' and 'queues'"
    return LocatedYaml.parse(file, text, shape=shape, invalid=InvalidQueues).validate(Queues)


@dataclass(frozen=True)
class Problem:
    """The error and its location."""

    location: tuple[str, ...]
    message: str


def parse_job_file(file: Path, text: str, *, invalid: type[PermanentError]) -> LocatedYaml:
    """The text of a job file, parsed.

    Raises:
        PermanentError: of type `invalid`; see `LocatedYaml.parse`.
    """
    shape = "a job is a mapping with the key 'type' and others"
    return LocatedYaml.parse(file, text, shape=shape, invalid=invalid)


def _problem_of_parameter(name: str, document: Mapping[str, Any], job_text: str) -> str | None:
    """Why a job file cannot take a parameter; None if it can."""
    if name in BOUND_INPUTS:
        return f"is an input that Landfall sets, as are {', '.join(sorted(BOUND_INPUTS))}"
    if isinstance(_mapping(document.get("inputs")).get(name), dict):
        return "is an input of job.yml with a path: a parameter is a value"
    scope = "parent." if job_type(document) == PIPELINE else ""
    reference = f"{scope}inputs.{name}"
    if re.search(rf"\$\{{\{{\s*{re.escape(reference)}\s*\}}\}}", job_text) is None:
        return f"is not used: nothing in job.yml reads ${{{{{reference}}}}}"
    return None


def check_job_file(file: Path, text: str, *, nodes: AbstractSet[int]) -> Mapping[str, Any]:
    """Check the text of a pipeline's job file; `nodes` are those of its compute options.

    Returns:
        The parsed file.

    Raises:
        InvalidPipeline: names file, line, key and the remedy.
    """
    parsed = parse_job_file(file, text, invalid=InvalidPipeline)
    problems = [
        parsed.problem(problem.location, problem.message)
        for problem in _problems(parsed.document, nodes)
    ]
    if problems:
        raise InvalidPipeline("\n".join(problems))
    return parsed.document


def job_type(document: Mapping[str, Any]) -> str:
    """The type of a job; command if the file has none, as in the CLI."""
    return str(document.get("type") or COMMAND)


def declared(document: Mapping[str, Any], key: str) -> frozenset[str]:
    """Names of a job's own inputs or outputs."""
    return frozenset(_mapping(document.get(key)))


def _problems(document: dict[str, Any], nodes: AbstractSet[int]) -> Iterator[Problem]:
    kind = job_type(document)
    match kind:
        case "command":
            count = _mapping(document.get("resources")).get("instance_count")
            if count is not None and count not in nodes:
                yield Problem(
                    ("resources", "instance_count"),
                    f"{count!r} is not the nodes of a compute option in pipeline.yml, which set "
                    "them: remove it, or change the option",
                )
        case "sweep":
            yield from _problems_of_sweep(document)
        case "pipeline":
            yield from _problems_of_pipeline(document)
        case _:
            yield Problem(
                ("type",), f"{kind!r} is not covered: use {COMMAND}, {SWEEP} or {PIPELINE}"
            )


def _problems_of_sweep(document: dict[str, Any]) -> Iterator[Problem]:
    trial = _mapping(document.get("trial"))
    for key in ("trial", "search_space", "objective"):
        if not _mapping(document.get(key)):
            yield Problem((key,), "a sweep needs it")
    for key in ("primary_metric", "goal"):
        if document.get("objective") and key not in _mapping(document["objective"]):
            yield Problem(("objective", key), "a sweep needs it: the best trial is chosen by it")
    for owner, location in ((trial, ("trial",)), (document, ())):
        if owner.get("distribution"):
            yield Problem((*location, "distribution"), "trials are not distributed: remove it")
        if _mapping(owner.get("resources")).get("instance_count", 1) != 1:
            yield Problem(
                (*location, "resources", "instance_count"),
                "a trial has one node; the compute option's nodes bound the trials at a time",
            )


def _problems_of_pipeline(document: dict[str, Any]) -> Iterator[Problem]:
    steps = _mapping(document.get("jobs"))
    if not steps:
        yield Problem(("jobs",), "a pipeline job needs steps")
        return
    known = {
        "inputs": declared(document, "inputs"),
        "outputs": declared(document, "outputs"),
        "jobs": frozenset(steps),
    }
    if RESULTS not in known["outputs"]:
        yield Problem(("outputs",), f"declare the output {RESULTS!r}: Landfall reads metrics there")
    written: set[str] = set()
    for step, body in steps.items():
        for side in ("inputs", "outputs"):
            for name, entry in _mapping(_mapping(body).get(side)).items():
                path: Any = _mapping(entry).get("path") if isinstance(entry, dict) else entry
                for match in _REFERENCE.finditer(str(path)):
                    kind = match["kind"]
                    if kind == "outputs" and side == "outputs":
                        written.add(match["name"])
                    if match["name"] not in known[kind]:
                        owner = "step" if kind == "jobs" else kind[:-1]
                        yield Problem(
                            ("jobs", step, side, name),
                            f"{match[0]}: the job has no {owner} {match['name']!r}",
                        )
    for name in sorted((known["outputs"] & OUTPUTS) - written):
        yield Problem(
            ("outputs", name),
            f"no step writes it: bind a step's output to ${{{{parent.outputs.{name}}}}}",
        )


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
