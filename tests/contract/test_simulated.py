"""A rule for data has a story of the simulation, or a named test of its own.

docs/simulation.md says how a rule gets its story.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
import yaml

from handlers.platform.settings import APP_FOLDER
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.holds import HoldReason
from tests.simulation import features
from tests.simulation.folders import PIPELINES_FOLDER, QUEUED_PIPELINES_FOLDER

HOLDS_WITHOUT_A_STORY: Mapping[HoldReason, str] = {}
"""Reason of a hold → the test that proves it, and why no story can."""
DECISIONS = "tests/unit/orchestrations/landing/test_decisions.py"
PARTITIONS = "tests/unit/orchestrations/configuration/test_partitions.py"
KEYS_WITHOUT_A_STORY = {
    "source.manifest": "tests/local/handlers/landing/test_batch_contents.py",
    "settle.without_marker": "tests/unit/orchestrations/landing/test_settling.py",
    "settle.minimum_change.bytes": DECISIONS,
    "settle.minimum_change.share": DECISIONS,
    "dataset.newest_partitions": PARTITIONS,
    "dataset.last_days": PARTITIONS,
    "checks.bytes_of_a_file": DECISIONS,
    "checks.share_of_each_label": DECISIONS,
    "checks.compute.idle_seconds_before_scale_down": (
        "tests/local/handlers/training/test_compute_clusters.py"
    ),
    "champion_check.compute.idle_seconds_before_scale_down": (
        "tests/local/handlers/training/test_compute_clusters.py"
    ),
    "champion_check.metric": "tests/unit/orchestrations/training/test_judging.py",
    "champion_check.margin": "tests/unit/orchestrations/training/test_concluding.py",
    "champion_check.new_data_share_at_most": DECISIONS,
}
"""Key of `pipeline.yml`, or the keys below it → the test that proves it: the same code decides on
it as on a key that has a story."""
SECTIONS_ABOUT_DATA = ("source", "settle", "dataset", "checks", "champion_check")
SCHEMA: Mapping[str, Any] = Pipeline.model_json_schema()


def keys_of(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys of a schema that have no keys below them, with dots."""
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    parts = [*node.get("anyOf", ()), *([node["items"]] if "items" in node else ())]
    for part in parts:
        yield from keys_of(part, prefix)
    for name, value in node.get("properties", {}).items():
        path = f"{prefix}.{name}".removeprefix(".")
        yield from list(keys_of(value, path)) or [path]


def keys_in(document: Any, prefix: str = "") -> Iterator[str]:
    """The keys that a document sets."""
    if isinstance(document, list):
        for item in document:
            yield from keys_in(item, prefix)
    elif isinstance(document, dict):
        for name, value in document.items():
            path = f"{prefix}.{name}".removeprefix(".")
            yield path
            yield from keys_in(value, path)


def test_every_module_of_a_feature_is_in_the_table() -> None:
    names = [name for _, name, _ in pkgutil.iter_modules(features.__path__)]
    found = [importlib.import_module(f"{features.__name__}.{name}").FEATURE for name in names]
    assert {id(each) for each in found} == {id(each) for each in features.FEATURES}


@pytest.mark.parametrize("reason", get_args(HoldReason))
def test_every_reason_of_a_hold_has_its_story(reason: HoldReason) -> None:
    """`test_features.py` sees that the story holds a batch for it."""
    told = [each for each in features.FEATURES if reason in each.holds]
    assert len(told) + (reason in HOLDS_WITHOUT_A_STORY) == 1, "docs/simulation.md says how"
    assert all(each.mistakes for each in told)


def test_every_key_about_data_is_drawn_or_has_its_test() -> None:
    files = [
        yaml.safe_load(file.read_text("utf-8"))
        for folder in (PIPELINES_FOLDER, QUEUED_PIPELINES_FOLDER)
        for file in folder.glob("*/pipeline.yml")
    ]
    changes = [change.sections for change in features.CHANGES.values()]
    drawn = {key for document in (*files, *changes) for key in keys_in(document)}
    without = [
        key
        for key in dict.fromkeys(keys_of(SCHEMA))
        if key.startswith(tuple(f"{section}." for section in SECTIONS_ABOUT_DATA))
        and key not in drawn
        and not any(key == known or key.startswith(f"{known}.") for known in KEYS_WITHOUT_A_STORY)
    ]
    assert without == [], "see docs/simulation.md"
    assert not drawn & KEYS_WITHOUT_A_STORY.keys()


@pytest.mark.parametrize(("key", "test"), KEYS_WITHOUT_A_STORY.items())
def test_a_key_without_a_story_is_in_the_test_that_is_named(key: str, test: str) -> None:
    assert key.rpartition(".")[2] in (APP_FOLDER / test).read_text("utf-8")
