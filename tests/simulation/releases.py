"""Releases of the app: its pipeline files with some changes, one deployment after another."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from handlers.platform.configuration.pipeline_files import load_pipelines
from orchestrations.configuration.pipeline import Pipeline
from tests.simulation.fakes.training import RECORDS_CONTAINER
from tests.simulation.features import CHANGES

_RELEASES = TemporaryDirectory(prefix="simulated-pipelines-")


@dataclass(frozen=True)
class Release:
    """What is deployed from a moment on."""

    at: datetime
    digest: str
    """As `resolve_configuration` names it."""
    pipeline: Pipeline


def read_release(folder: Path, pipeline: str, at: datetime) -> Release:
    """The release in a folder, as far as it is about one pipeline."""
    deployed = pipelines_of(folder)[pipeline]
    texts: list[Any] = [(folder / pipeline / "pipeline.yml").read_text("utf-8")]
    *checks, job = (folder / pipeline / name for name, _ in deployed.jobs.values())
    texts += [job.read_text("utf-8"), *([each.read_text("utf-8"), None] for each in checks)]
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
    return Release(at, digest, deployed)


@functools.cache
def pipelines_of(folder: Path) -> dict[str, Pipeline]:
    """The pipelines in a folder, by name."""
    return dict(load_pipelines(folder, records_container=RECORDS_CONTAINER))


@functools.cache
def write_release(
    source: Path,
    pipelines: tuple[str, ...],
    floor: float,
    changes: tuple[str, ...] = (),
) -> Path:
    """A folder with some of the pipelines, another gate and command, and some changes.

    It serves all seeds of a process: to write and parse it again takes longer than a calm day of
    the simulation.
    """
    name = f"{'-'.join(pipelines)}-{floor}-{'-'.join(changes)}".replace(" ", "_")
    folder = Path(_RELEASES.name) / str(os.getpid()) / name
    folder.mkdir(parents=True)
    for each in source.iterdir():
        if each.is_file():
            shutil.copy(each, folder)
        elif each.name in pipelines:
            shutil.copytree(each, folder / each.name)
    for file in folder.glob("*/pipeline.yml"):
        document = yaml.safe_load(file.read_text("utf-8"))
        document["gate"]["floor"] = floor
        for change in changes:
            _apply(document, CHANGES[change].sections)
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        for name in (job for change in changes for job in CHANGES[change].jobs):
            shutil.copy(file.parent / "job.yml", file.parent / name)
    for file in folder.glob("*/job.yml"):
        text = file.read_text("utf-8")
        file.write_text(text.replace("trainers.train", f"trainers.train --{floor}"))
    return folder


@functools.cache
def write_release_without(source: Path, pipeline: str) -> Path:
    """A folder with all pipelines but one."""
    folder = Path(_RELEASES.name) / str(os.getpid()) / f"{source.name}-without-{pipeline}"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(pipeline))
    return folder


def _fits(document: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Whether a pipeline has the step that a question of `approve` is about."""
    deploy = document.get("deploy")
    match item.get("before"):
        case "rollout":
            return deploy is not None
        case "full-traffic":
            return deploy is not None and "steps" in deploy
        case _:
            return True


def _apply(document: dict[str, Any], change: Mapping[str, Any]) -> None:
    for section, values in change.items():
        # A pipeline without an endpoint gets none.
        found = document.get("deploy") if section == "deploy" else document.setdefault(section, {})
        if isinstance(values, list):
            document[section] = [it for it in copy.deepcopy(values) if _fits(document, it)]
            continue
        if found is None or ("steps" in values and "steps" not in found):
            continue
        for key, value in copy.deepcopy(values).items():
            if key == "guards" and "error_rate" not in found["guards"]:
                continue  # of a batch endpoint
            if value is None:
                found.pop(key, None)
            elif isinstance(value, dict):
                found[key] = {**found.get(key, {}), **value}
            else:
                found[key] = value
