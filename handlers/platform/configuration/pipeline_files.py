"""Read and check the files of the folder of pipelines.

They are `<name>/pipeline.yml` with the files that it names, `queues.yml` and `workspaces.yml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from handlers.platform.configuration.azure_ml_files import (
    check_deployment_file,
    check_job_file,
    problem_of_parameter,
)
from handlers.platform.configuration.located_yaml import LocatedYaml, Location, read_text
from orchestrations.configuration.deploy import BatchDeploy
from orchestrations.configuration.pipeline import SECTIONS, Pipeline
from orchestrations.configuration.queues import Queues, mismatch
from orchestrations.configuration.workspaces import Destination, Workspaces
from orchestrations.errors import InvalidPipeline, InvalidQueues, InvalidWorkspaces

PIPELINE_FILE = "pipeline.yml"
# Keys that earlier releases had, and what to do instead. Kept files and running instances may still
# have them: there they are ignored.
_REMOVED = {
    "minimum_scaling_efficiency": (
        "delete it, and put the options of compute into the order in which runs try them"
    ),
}
QUEUES_FILE = "queues.yml"
WORKSPACES_FILE = "workspaces.yml"
_Contradiction = tuple[Location, object, str]
"""The error's location, the value and the reason."""


def load_pipelines(folder: Path, *, records_container: str) -> Mapping[str, Pipeline]:
    """Every pipeline in `folder`, by name (the name of its own folder).

    Raises:
        InvalidPipeline: a file is unreadable or breaks the schema, a job or deployment file is
            missing or invalid (see `azure_ml_files`), keys contradict each other or `queues.yml`,
            it watches Landfall's own records container, or two pipelines watch one place; names
            file, line, key and value.
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
        parameters = pipeline.parameters if stage == "training" else ()
        nodes = {option.nodes for option in compute}
        document = check_job_file(job_file, job_text, nodes=nodes, parameters=parameters)
        for parameter in parameters:
            problem = problem_of_parameter(parameter, document, job_text)
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
            source, other_source = pipeline.source, other.source
            if source.container == other_source.container and (
                source.prefix.startswith(other_source.prefix)
                or other_source.prefix.startswith(source.prefix)
            ):
                raise InvalidPipeline(
                    f"pipelines {name} and {other_name} watch one place: container "
                    f"{source.container!r}, prefixes {source.prefix!r} and "
                    f"{other_source.prefix!r}; give each a prefix of its own"
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


def load_destinations(folder: Path) -> Mapping[str, Destination]:
    """The workspaces that models are promoted to, by name; none without `workspaces.yml`.

    Raises:
        InvalidWorkspaces: it is unreadable or breaks the schema; names file, line, key and value.
    """
    file = folder / WORKSPACES_FILE
    if not file.exists():
        return {}
    text = read_text(file, invalid=InvalidWorkspaces)
    shape = "it is a mapping with the key 'workspaces'"
    parsed = LocatedYaml.parse(file, text, shape=shape, invalid=InvalidWorkspaces)
    return {each.name: each for each in parsed.validate(Workspaces).workspaces}
