from __future__ import annotations

from pathlib import Path

import pytest

from handlers.platform.configuration.pipeline_files import load_pipelines
from orchestrations.errors import InvalidPipeline

GOOD = """\
source:
  container: landing
  prefix: digits/
settle:
  quiet_seconds: 10
  maximum_wait_seconds: 100
dataset: {name: digits, datastore: landing}
compute:
  - {cluster: cpu, size: Standard_D4, nodes: 1}
gate:
  metric: accuracy
  floor: 0.8
model: {name: digits}
"""


def write(folder: Path, name: str, text: str = GOOD) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "pipeline.yml").write_text(text)
    (folder / name / "job.yml").write_text("type: command\n")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("quiet_seconds: 10", "quiet_seconds: -1", r":5: settle.quiet_seconds: .*\(value: -1\)"),
        ("quiet_seconds: 10", "quiet_seconds: 500", r":4: settle: .*shorter than quiet_seconds"),
        ("floor: 0.8", "flor: 0.8", r"gate.floor: Field required"),
        ("floor: 0.8", "flor: 0.8", r":12: gate.flor: Extra inputs"),
        ("nodes: 1", "nodes: many", r":9: compute.0.nodes: .*\(value: 'many'\)"),
        ("prefix: digits/", "prefix: digits", r":3: source.prefix: .*\(value: 'digits'\)"),
        ("prefix: digits/", "prefix: ../digits/", r":3: source.prefix: "),
        ("model: {name: digits}", "model: [", r"no valid YAML"),
        (
            "model: {name: digits}",
            "job: nowhere.yml\nmodel: {name: digits}",
            r":13: job: .*nowhere",
        ),
        (GOOD, "- a list", r":1: a pipeline is a mapping"),
        (
            "gate:",
            "minimum_scaling_efficiency: 0.8\ngate:",
            r":10: minimum_scaling_efficiency: was removed: delete it, and put the options of",
        ),
        # Keys that contradict each other.
        (
            "maximum_wait_seconds: 100",
            "maximum_wait_seconds: 100\n  without_marker: train",
            r":7: settle\.without_marker: .*source\.marker, which is not set \(value: 'train'\)",
        ),
        (
            "prefix: digits/",
            "prefix: digits/\n  manifest: m.jsonl\n  marker: _SUCCESS",
            r":5: source\.marker: excludes source\.manifest.*\(value: '_SUCCESS'\)",
        ),
        (
            "prefix: digits/",
            "prefix: digits/\n  batch: partition",
            r":4: source\.batch: needs source\.partitions \(value: 'partition'\)",
        ),
        (
            "datastore: landing}",
            "datastore: landing, last_days: 3}",
            r":7: dataset\.last_days: needs source\.partitions \(value: 3\)",
        ),
        (
            "datastore: landing}",
            "datastore: landing, newest_partitions: 2}",
            r":7: dataset\.newest_partitions: needs source\.partitions \(value: 2\)",
        ),
        (
            GOOD,
            GOOD.replace(
                "  prefix: digits/", "  prefix: digits/\n  partitions: date=%Y-%m-%d"
            ).replace(
                "datastore: landing}", "datastore: landing, newest_partitions: 2, last_days: 3}"
            ),
            r":8: dataset\.last_days: excludes dataset\.newest_partitions.*\(value: 3\)",
        ),
        (
            GOOD,
            GOOD.replace(
                "  prefix: digits/", "  prefix: digits/\n  partitions: date=%Y\n  manifest: m"
            ).replace("datastore: landing}", "datastore: landing, last_days: 3}"),
            r":9: dataset\.last_days: excludes source\.manifest.*\(value: 3\)",
        ),
        (
            "container: landing",
            "container: landfall",
            r":2: source\.container: holds Landfall's own records.*\(value: 'landfall'\)",
        ),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_value(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    write(tmp_path, "digits", GOOD.replace(old, new))
    with pytest.raises(InvalidPipeline, match=words) as caught:
        load_pipelines(tmp_path, records_container="landfall")
    assert str(tmp_path / "digits" / "pipeline.yml") in str(caught.value)


@pytest.mark.parametrize(
    ("deploy", "words"),
    [
        ("kind: batch", r":14: deploy\.compute: Field required"),
        ("kind: batch\n  compute: c_1", r":17: deploy\.compute: .*\(value: 'c_1'\)"),
        ("kind: stream", r":14: deploy: kind must be 'online' or 'batch'"),
        (
            "instance_type: D3\n  steps: [{traffic: 10, bake_minutes: 1}]",
            r":14: deploy: .*end with traffic: 100",
        ),
    ],
)
def test_what_deploy_gets_wrong_is_named_by_the_keys_of_the_file(
    tmp_path: Path, deploy: str, words: str
) -> None:
    write(tmp_path, "digits", f"{GOOD}deploy:\n  endpoint: digits\n  {deploy}\n")
    with pytest.raises(InvalidPipeline, match=words):
        load_pipelines(tmp_path, records_container="landfall")


@pytest.mark.parametrize("prefix", ["digits/", "digits/new/", ""])
def test_two_pipelines_must_not_watch_one_place(tmp_path: Path, prefix: str) -> None:
    write(tmp_path, "digits")
    write(tmp_path, "other", GOOD.replace("digits/", prefix or '""'))
    with pytest.raises(InvalidPipeline, match="watch one place"):
        load_pipelines(tmp_path, records_container="landfall")


def test_prefixes_that_only_look_alike_are_two_places(tmp_path: Path) -> None:
    write(tmp_path, "digits")
    write(tmp_path, "other", GOOD.replace("digits/", "digits-new/"))
    pipelines = load_pipelines(tmp_path, records_container="landfall")
    assert {name: found.source.prefix for name, found in pipelines.items()} == {
        "digits": "digits/",
        "other": "digits-new/",
    }
    assert pipelines["other"].name == "other"


GUARDED = """\
deploy:
  endpoint: digits
  instance_type: Standard_DS3_v2
  steps: [{traffic: 100, bake_minutes: 1}]
  guards:
    answers: [{metric: mean, field: price, max: 9, collection: response}]
"""


@pytest.mark.parametrize("enabled", ["'true'", "'True'"])
def test_a_guard_of_answers_needs_a_deployment_that_collects_them(
    tmp_path: Path, enabled: str
) -> None:
    write(tmp_path, "digits", GOOD + GUARDED)
    deployment = tmp_path / "digits" / "deployment.yml"
    collector = "data_collector:\n  collections:\n"
    for content in (
        "data_collector: none",
        f"{collector}    request: {{enabled: 'true'}}",
        f"{collector}    response: {{enabled: true}}",
        f"{collector}    response: {{enabled: 'False'}}",
    ):
        deployment.write_text(content)
        words = r"deployment\.yml:\d: data_collector\.collections\.response\.enabled: "
        with pytest.raises(InvalidPipeline, match=words):
            load_pipelines(tmp_path, records_container="landfall")
    deployment.write_text(f"{collector}    response: {{enabled: {enabled}}}")
    assert load_pipelines(tmp_path, records_container="landfall")
