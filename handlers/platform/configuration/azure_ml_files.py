"""Check the files of Azure ML that a pipeline names: its jobs, and its deployment.

Of a job file (a command, sweep or pipeline job of Azure ML's CLI v2) only what Landfall needs is
checked, and what Azure ML would find out when data has landed: local files that do not exist, and
inputs or outputs that nothing declares. Azure ML checks the rest when the job is submitted. The SDK
is not imported, since that takes seconds at every start of the app.
https://learn.microsoft.com/azure/machine-learning/reference-yaml-overview#job
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from handlers.platform.configuration.located_yaml import LocatedYaml, Location, read_text
from orchestrations.configuration.deploy import Deploy, OnlineDeploy
from orchestrations.errors import InvalidPipeline, PermanentError

COMMAND, SWEEP, PIPELINE = "command", "sweep", "pipeline"
RESULTS = "results"
OUTPUTS = frozenset({RESULTS, "checkpoints"})
"""The outputs that Landfall binds."""
BOUND_INPUTS = frozenset({"manifest", "data", "champion", "initial_model"})
_PARENT_REFERENCE = re.compile(
    r"\$\{\{\s*parent\.(?P<kind>inputs|outputs|jobs)\.(?P<name>[A-Za-z0-9_-]+)"
    r"(?:\.outputs\.(?P<output>[A-Za-z0-9_-]+))?\s*\}\}"
)
_REFERENCE = re.compile(r"\$\{\{\s*(?P<kind>inputs|outputs|search_space)\.(?P<name>[A-Za-z0-9_-]+)")


@dataclass(frozen=True)
class Problem:
    """The error and its location."""

    location: Location
    message: str


def parse_job_file(file: Path, text: str, *, invalid: type[PermanentError]) -> LocatedYaml:
    """The text of a job file, parsed.

    Raises:
        PermanentError: of type `invalid`; see `LocatedYaml.parse`.
    """
    shape = "a job is a mapping with the key 'type' and others"
    return LocatedYaml.parse(file, text, shape=shape, invalid=invalid)


def problem_of_parameter(name: str, document: Mapping[str, Any], job_text: str) -> str | None:
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


def check_job_file(
    file: Path, text: str, *, nodes: AbstractSet[int], parameters: Iterable[str] = ()
) -> Mapping[str, Any]:
    """Check the text of a pipeline's job file.

    Args:
        file: the file.
        text: its text.
        nodes: those of its compute options.
        parameters: the inputs that requests may set, also if the file does not declare them.

    Returns:
        The parsed file.

    Raises:
        InvalidPipeline: names file, line, key and the remedy.
    """
    parsed = parse_job_file(file, text, invalid=InvalidPipeline)
    _refuse(parsed, _problems(parsed.document, nodes))
    _refuse(parsed, _missing_files(file, parsed.document))
    _refuse(parsed, _unknown_references(parsed.document, parameters))
    return parsed.document


def check_deployment_file(file: Path, deploy: Deploy) -> None:
    """Check a deployment file, and that it collects the answers that a guard measures.

    Raises:
        InvalidPipeline: they are not collected, a local file does not exist, or it is not a mapping
            (see `located_yaml`); names file, line and key.
    """
    parsed = LocatedYaml.parse(
        file,
        read_text(file, invalid=InvalidPipeline),
        shape=f"a deployment is a mapping, as `az ml {deploy.kind}-deployment create` takes it",
        invalid=InvalidPipeline,
    )
    _refuse(parsed, _missing_files(file, parsed.document))
    guards = deploy.guards.answers if isinstance(deploy, OnlineDeploy) else []
    wanted = {guard.collection for guard in guards}
    collector = _mapping(parsed.document.get("data_collector"))
    collections = _mapping(collector.get("collections"))
    for name in sorted(wanted):
        enabled = _mapping(collections.get(name)).get("enabled")
        # CLI v2 accepts only the string, not a boolean.
        if not isinstance(enabled, str) or enabled.lower() != "true":
            location = ("data_collector", "collections", name, "enabled")
            problem = "a guard in deploy.guards.answers of pipeline.yml needs the text 'true' here"
            raise InvalidPipeline(parsed.problem(location, problem))


def _refuse(parsed: LocatedYaml, problems: Iterable[Problem]) -> None:
    found = [parsed.problem(each.location, each.message) for each in problems]
    if found:
        raise InvalidPipeline("\n".join(found))


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
    resources = {
        "inputs": declared(document, "inputs"),
        "outputs": declared(document, "outputs"),
        "jobs": frozenset(steps),
    }
    if RESULTS not in resources["outputs"]:
        yield Problem(("outputs",), f"declare the output {RESULTS!r}: Landfall reads metrics there")
    written: set[str] = set()
    for step, body in steps.items():
        for location, side, entry in _entries_of_step(step, body):
            path: Any = _mapping(entry).get("path") if isinstance(entry, dict) else entry
            for match in _PARENT_REFERENCE.finditer(str(path)):
                kind = match["kind"]
                if kind == "outputs" and side == "outputs":
                    written.add(match["name"])
                if match["name"] not in resources[kind]:
                    owner = "step" if kind == "jobs" else kind[:-1]
                    yield Problem(location, f"{match[0]}: the job has no {owner} {match['name']!r}")
    for name in sorted((resources["outputs"] & OUTPUTS) - written):
        yield Problem(
            ("outputs", name),
            f"no step writes it: bind a step's output to ${{{{parent.outputs.{name}}}}}",
        )
    yield from _mounts_for_spark(document)


def _mounts_for_spark(document: dict[str, Any]) -> Iterator[Problem]:
    """Data of the job that a Spark step would get mounted, the default of what Landfall binds.

    A step's mode takes precedence over the job's, and that over a component's.
    https://learn.microsoft.com/azure/machine-learning/how-to-submit-spark-jobs
    """
    for step, body in _mapping(document.get("jobs")).items():
        if _mapping(body).get("type") != "spark":
            continue
        for location, side, entry in _entries_of_step(step, body):
            options = _mapping(entry) or {"path": entry}
            match = _PARENT_REFERENCE.fullmatch(str(options.get("path")))
            if match is None or match["kind"] != side:
                continue
            of_job = _mapping(document.get(side)).get(match["name"])
            is_data = isinstance(of_job, dict) or match["name"] in BOUND_INPUTS | OUTPUTS
            mode = options.get("mode") or _mapping(of_job).get("mode")
            if is_data and mode != "direct":
                yield Problem(
                    location, f"Spark takes no mounts: write {{path: {match[0]}, mode: direct}}"
                )


def _entries_of_step(step: str, body: Any) -> Iterator[tuple[Location, str, Any]]:
    """Location, side and value of each input and output of a step."""
    for side in ("inputs", "outputs"):
        for name, entry in _mapping(_mapping(body).get(side)).items():
            yield ("jobs", step, side, name), side, entry


def _bodies(document: Mapping[str, Any]) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """Location → what names code and a command: the job or deployment, its trial, its steps."""
    yield (), document
    inner = {("jobs", step): body for step, body in _mapping(document.get("jobs")).items()}
    for location, body in {("trial",): document.get("trial"), **inner}.items():
        for deeper, found in _bodies(body) if isinstance(body, dict) else ():
            yield (*location, *deeper), found


def _missing_files(file: Path, document: Mapping[str, Any]) -> Iterator[Problem]:
    """Names of local files and folders, relative to the file that names them, of which none is."""
    for location, body in _bodies(document):
        environment = _mapping(body.get("environment"))
        scoring = _mapping(body.get("code_configuration"))
        named: dict[Location, Any] = {
            ("code",): body.get("code"),
            ("entry", "file"): _path_in_code(body, _mapping(body.get("entry")).get("file")),
            ("environment", "conda_file"): environment.get("conda_file"),
            ("environment", "build", "path"): _mapping(environment.get("build")).get("path"),
            ("code_configuration", "code"): scoring.get("code"),
            ("code_configuration", "scoring_script"): _path_in_code(
                scoring, scoring.get("scoring_script")
            ),
            **{(key,): _file_of(body.get(key)) for key in ("environment", "component", "trial")},
        }
        for key, name in named.items():
            if isinstance(name, str) and _is_local(name) and not (file.parent / name).exists():
                where = f"{name!r} does not exist, from the folder of {file.name}"
                yield Problem((*location, *key), where)


def _path_in_code(body: Mapping[str, Any], name: Any) -> str | None:
    """A file in the code, from the job or deployment file; None if the code is not local."""
    code = body.get("code")
    return (
        f"{code}/{name}"
        if isinstance(code, str) and isinstance(name, str) and _is_local(code)
        else None
    )


def _is_local(name: str) -> bool:
    return not name.startswith(("azureml:", "git@")) and "://" not in name and "${{" not in name


def _file_of(value: Any) -> str | None:
    """The YAML file that a key names, which can also name an asset; None if it does not."""
    if not isinstance(value, str):
        return None
    is_file = value.startswith("file:") or value.endswith((".yml", ".yaml"))
    return value.removeprefix("file:") if is_file else None


def _unknown_references(
    document: Mapping[str, Any], parameters: Iterable[str]
) -> Iterator[Problem]:
    """Inputs, outputs and swept values in commands that nothing declares."""
    bodies = dict(_bodies(document))
    for location, body in bodies.items():
        is_step = location[:1] == ("jobs",)
        owners = [body, bodies[location[:-1]]] if location[-1:] == ("trial",) else [body]
        known = {
            kind: frozenset[str]().union(*(declared(owner, kind) for owner in owners))
            for kind in ("inputs", "outputs", "search_space")
        }
        if not is_step:
            known["inputs"] |= BOUND_INPUTS.union(parameters)
            known["outputs"] |= OUTPUTS
        for key in ("command", "args"):  # the second is of Spark's
            for match in _REFERENCE.finditer(str(body.get(key) or "")):
                kind, name = match["kind"], match["name"]
                if name not in known[kind]:
                    there = ", ".join(sorted(known[kind])) or "none"
                    problem = f"${{{{{kind}.{name}}}}}: {kind} has no {name!r}; there are: {there}"
                    yield Problem((*location, key), problem)


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
