"""Checks a pipeline's `job.yml`: a command, sweep or pipeline job of Azure ML's CLI v2.

Checks only what Landfall needs; Azure ML checks the rest when the job is submitted. The SDK is not
imported, since that takes seconds at every start of the app.
https://learn.microsoft.com/azure/machine-learning/reference-yaml-overview#job
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from handlers.platform.configuration.located_yaml import LocatedYaml
from orchestrations.errors import InvalidPipeline, PermanentError

COMMAND, SWEEP, PIPELINE = "command", "sweep", "pipeline"
RESULTS = "results"
OUTPUTS = frozenset({RESULTS, "checkpoints"})
"""The outputs that Landfall binds."""

_REFERENCE = re.compile(
    r"\$\{\{\s*parent\.(?P<kind>inputs|outputs|jobs)\.(?P<name>[A-Za-z0-9_-]+)"
    r"(?:\.outputs\.(?P<output>[A-Za-z0-9_-]+))?\s*\}\}"
)


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


def check_job_file(file: Path, text: str, *, nodes: AbstractSet[int]) -> None:
    """Check the text of a pipeline's job file; `nodes` are those of its compute options.

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
