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
from tests.simulation.story import ConfigurationChange

_RELEASES = TemporaryDirectory(prefix="simulated-pipelines-")

_CHEAP = {"cluster": "spot", "size": "Standard_D4s_v5", "priority": "low_priority", "nodes": 1}
_CREATED = ("checks", "champion_check")
CHANGES: Mapping[ConfigurationChange, Mapping[str, Any]] = {
    "include": {"source": {"include": ["[0-9]*[0-3].png", "day=*[0-3].png"]}},
    "exclude nothing": {"source": {"include": ["*"]}},
    "marker": {"source": {"marker": "_SUCCESS"}},
    "no marker": {"source": {"marker": None}},
    "settle": {"settle": {"quiet_seconds": 900, "maximum_wait_seconds": 5_400}},
    "copies": {"dataset": {"freeze": "copy"}},
    "no copies": {"dataset": {"freeze": "reference"}},
    "shrinks": {"dataset": {"maximum_shrink": 1}},
    "margin": {"gate": {"champion_margin": 0.01}},
    "slices": {"gate": {"significance": {}, "slices": [{"match": "*:*", "fall_at_most": 0.05}]}},
    "challengers": {"model": {"register_challengers": True}},
    "retry": {"retry": {"attempts": 2, "delays_seconds": [300]}},
    "limits": {"limits": {"queued_seconds": 1_800, "running_seconds": 7_200}},
    "notify": {"notify": {"event_grid": False}},
    "guards": {"deploy": {"guards": {"error_rate": 0.2, "minimum_requests": 5}}},
    # Long enough to see a model that fails later.
    "steps": {"deploy": {"steps": [{"traffic": 100, "bake_minutes": 60}]}},
    "windows": {"deploy": {"windows": {"open": ["* 6-17 * * *"]}}},
    "approvals": {
        "approve": [
            {"before": "registration", "hours": 6},
            {"before": "rollout", "hours": 2, "on_silence": "proceed"},
            {"before": "full-traffic", "hours": 4, "by": ["ada"]},
        ]
    },
    "checks": {"checks": {"changed_at_most": 0.3, "duplicates_at_most": 0.4}},
    "minimum change": {"settle": {"minimum_change": {"files": 3}, "maximum_age_seconds": 21_600}},
    "jobs of checks": {
        "checks": {"job": "checks.yml", "compute": [_CHEAP]},
        "champion_check": {"job": "champion.yml", "compute": [_CHEAP]},
    },
    # The first option is on another cluster; the second one needs more nodes of a known one.
    "compute": {
        "compute": [
            {"cluster": "large", "size": "Standard_D16s_v5", "nodes": 1},
            {
                "cluster": "spot",
                "size": "Standard_D4s_v5",
                "priority": "low_priority",
                "nodes": 2,
            },
        ]
    },
}
"""Change → section → keys and their values, or the whole section if it is a list. A section that a
pipeline lacks stays away, except those of checks."""


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
    changes: tuple[ConfigurationChange, ...] = (),
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
            _apply(document, CHANGES[change])
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        for name in ("checks.yml", "champion.yml") if "jobs of checks" in changes else ():
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
        found = document.setdefault(section, {}) if section in _CREATED else document.get(section)
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
