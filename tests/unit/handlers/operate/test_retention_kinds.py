from __future__ import annotations

import re

import pytest

from handlers.operate.retention_kinds import INSTANCES, KEPT, KINDS, InUse, Kind
from handlers.platform.settings import APP_FOLDER, KEEP_DAYS

PAGE = (APP_FOLDER / "docs" / "operations.md").read_text("utf-8")
NOTHING = InUse(
    pipelines=frozenset({"digits"}),
    runs=frozenset(),
    versions=frozenset(),
    unfinished_versions=frozenset(),
    last_versions=frozenset(),
    rollouts=frozenset(),
)
EVERYTHING = InUse(
    pipelines=frozenset({"digits"}),
    runs=frozenset({"digits-v1-1"}),
    versions=frozenset({("digits", "v1")}),
    unfinished_versions=frozenset({("digits", "v1")}),
    last_versions=frozenset({("digits", "v1")}),
    rollouts=frozenset({"rollout-e-1"}),
)


def kind(prefix: str, last_part: str | None = None) -> Kind:
    (found,) = (k for k in KINDS if k.prefix == prefix and k.last_part in (None, last_part))
    return found


@pytest.mark.parametrize(
    ("of", "name", "subject"),
    [
        (kind("events/"), "events/digits/2026-11-02T10_0000.jsonl", None),
        (kind("runs/"), "runs/digits-v1-1/results.json", "runs/digits-v1-1"),
        (kind("run-index/"), "run-index/all/digits/123_digits-v1-1", None),
        (kind("runs/"), "runs/digits-v1p2-1/record.json", "runs/digits-v1p2-1"),
        (kind("manifests/"), "manifests/digits/v1/MLTable", "manifests/digits/v1"),
        (kind("released/"), "released/digits/v1.json", None),
        (kind("rollout-index/"), "rollout-index/123_rollout-e-1", None),
        (kind("rollouts/"), "rollouts/rollout-e-1/asked.json", "rollouts/rollout-e-1"),
        (
            kind("landfall/", "checkpoints"),
            "landfall/digits/v1/checkpoints/1/a.pt",
            "landfall/digits/v1/checkpoints",
        ),
        (
            kind("landfall/", "results"),
            "landfall/digits/digits-v1-1/results/model/m.onnx",
            "landfall/digits/digits-v1-1/results",
        ),
    ],
)
def test_what_is_in_use_stays_and_the_rest_goes_as_a_whole(
    of: Kind, name: str, subject: str | None
) -> None:
    assert of.subject(name) == (subject or name)
    assert of.removes(of.subject(name), NOTHING)
    if of.prefix != "events/":
        assert not of.removes(of.subject(name), EVERYTHING)


@pytest.mark.parametrize(
    ("of", "subject"),
    [
        (kind("runs/"), "runs/gone-v1-1"),
        (kind("run-index/"), "run-index/all/gone/123_gone-v1-1"),
        (kind("run-index/"), "run-index/unfinished/digits/123_digits-v1-1"),
        (kind("manifests/"), "manifests/gone/v1"),
        (kind("released/"), "released/gone/v1.json"),
        (kind("rollouts/"), "rollouts/claims"),
        (kind("landfall/", "checkpoints"), "landfall/gone/v1/checkpoints"),
        (kind("landfall/", "checkpoints"), "landfall/digits/digits-v1-1/results"),
        (kind("landfall/", "results"), "landfall/digits/v1/checkpoints"),
        (kind("landfall/", "results"), "landfall/digits/v1/somebody-else's"),
    ],
)
def test_what_is_of_no_deployed_pipeline_or_of_another_kind_stays(of: Kind, subject: str) -> None:
    assert not of.removes(subject, NOTHING)


def test_no_prefix_hides_another_and_every_kind_has_a_setting() -> None:
    removed = [kind.prefix for kind in KINDS if kind.place == "records"]
    assert len({*removed, *KEPT}) == len(removed) + len(KEPT)
    assert {kind.setting for kind in KINDS} | {INSTANCES} <= set(KEEP_DAYS)


def test_the_page_lists_every_prefix_with_its_setting() -> None:
    table = PAGE.partition("## The records container")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    for each in (each for each in KINDS if each.place == "records"):
        row = [line for line in rows if f"`{each.prefix}" in line.split(" | ")[0]]
        assert row, each.prefix
        assert any(f"`{each.setting}`" in line for line in row), each.prefix
    for prefix in KEPT:
        assert any(f"`{prefix}" in line.split(" | ")[0] for line in rows), prefix
    named = (re.match(r"\| `([\w-]+/)", line) for line in rows)
    prefixes = (*KEPT, *(each.prefix for each in KINDS if each.place == "records"))
    folders = {prefix.partition("/")[0] + "/" for prefix in prefixes}
    assert {found[1] for found in named if found} == folders


def test_the_page_gives_the_default_of_every_setting() -> None:
    for name, (default, fewest) in KEEP_DAYS.items():
        assert re.search(rf"\| `{name}` \| {default} \| {fewest} \|", PAGE), name
