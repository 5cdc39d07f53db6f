from __future__ import annotations

from pathlib import Path

import pytest

from handlers.platform.configuration.pipeline_files import (
    load_destinations,
    load_pipelines,
    load_queues,
)
from orchestrations.errors import InvalidPipeline, InvalidQueues, InvalidWorkspaces

CHEAP = "{cluster: cheap, size: D2, nodes: 1}"
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
GUARDED = """\
deploy:
  endpoint: digits
  instance_type: Standard_DS3_v2
  steps: [{traffic: 100, bake_minutes: 1}]
  guards:
    answers: [{metric: mean, field: price, max: 9, collection: response}]
"""
QUEUES = """\
flavors:
  - {name: cpu, cluster: cpu, nodes: 4, price_per_node_hour: 0.2}
  - {name: gpu, cluster: gpu, nodes: 2, price_per_node_hour: 3.67}
queues:
  - name: vision
    weight: 2
    quotas:
      - {flavor: cpu, nominal_quota: 2, borrowing_limit: 1}
    budget: {amount: 500, days: 7}
  - name: speech
    quotas: [{flavor: gpu}]
"""
WORKSPACES = """\
workspaces:
  - name: production
    subscription_id: 11111111-2222-3333-4444-555555555555
    resource_group: ml-production
    workspace: mlw-production
    storage: ProductionStorage
    approve:
      hours: 48
      by: [ada]
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
        (
            "floor: 0.8",
            "floor: 0.8\n  champion_margin: -0.01\n  significance: {alpha: 0.05}",
            r":10: gate: .*significance needs champion_margin of at least 0",
        ),
        (
            "floor: 0.8",
            "floor: 0.8\n  significance:\n    alpha: 5",
            r":14: gate.significance.alpha: .*less than or equal to 0.5.* 5",
        ),
        (
            "floor: 0.8",
            "floor: 0.8\n  slices:\n    - match: label:*\n      fall_at_most: -0.1",
            r":15: gate.slices.0.fall_at_most: .*greater than or equal to 0.* -0.1",
        ),
        (
            "floor: 0.8",
            "floor: 0.8\n  slices: [{match: '*', fall_at_most: 0.1, samples: 9}]",
            r":13: gate.slices.0.samples: Extra inputs",
        ),
        ("nodes: 1", "nodes: many", r":9: compute.0.nodes: .*\(value: 'many'\)"),
        ("prefix: digits/", "prefix: digits", r":3: source.prefix: .*\(value: 'digits'\)"),
        ("prefix: digits/", "prefix: ../digits/", r":3: source.prefix: "),
        ("model: {name: digits}", "model: [", r"no valid YAML"),
        (
            "model: {name: digits}",
            "job: nowhere.yml\nmodel: {name: digits}",
            r":13: job: .*nowhere",
        ),
        (
            "gate:",
            "checks: {job: checks.yml}\ngate:",
            r":10: checks: .*job and compute need each other \(value",
        ),
        (
            "gate:",
            f"checks:\n  job: checks.yml\n  compute: [{CHEAP}]\ngate:",
            r":11: checks\.job: 'checks\.yml' is not a file in the folder",
        ),
        (
            "gate:",
            f"champion_check:\n  job: job.yml\n  compute: [{CHEAP}]\n  margin: -1\ngate:",
            r":13: champion_check\.margin: .*\(value: -1\)",
        ),
        (GOOD, "- a list", r":1: a pipeline is a mapping"),
        (
            "gate:",
            "minimum_scaling_efficiency: 0.8\ngate:",
            r":10: minimum_scaling_efficiency: was removed: delete it, and put the options of",
        ),
        (
            "gate:",
            "notify: {webhooks: [{name: people, url_setting: URL, format: discord}]}\ngate:",
            r":10: notify\.webhooks\.0\.format: .*'teams' or 'slack' \(value: 'discord'\)",
        ),
        # Parameters that job.yml cannot take.
        (
            "gate:",
            "parameters: {seed: {type: integer, default: 0}}\ngate:",
            r":10: parameters\.seed: is not used: nothing in job\.yml reads \$\{\{inputs\.seed\}\}",
        ),
        (
            "gate:",
            "parameters: {data: {type: text, default: a}}\ngate:",
            r":10: parameters\.data: is an input that Landfall sets",
        ),
        (
            "gate:",
            "parameters: {seed: {type: integer, default: -1, minimum: 0}}\ngate:",
            r":10: parameters\.seed: Value error, the default -1 is less than 0",
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


@pytest.mark.parametrize(
    ("approve", "words"),
    [
        ("{before: tomorrow}", r":14: approve\.before: .*\(value: 'tomorrow'\)"),
        ("{before: registration, hours: 0}", r":14: approve\.hours: .*\(value: 0\)"),
        ("[{before: rollout}]", r":14: approve\.0\.before: needs deploy.*\(value: 'rollout'\)"),
        ("[{before: registration}, {before: registration}]", r":14: approve: .*the same step"),
    ],
)
def test_a_wrong_question_to_people_is_named(tmp_path: Path, approve: str, words: str) -> None:
    write(tmp_path, "digits", f"{GOOD}approve: {approve}\n")
    with pytest.raises(InvalidPipeline, match=words):
        load_pipelines(tmp_path, records_container="landfall")


def test_one_question_stands_without_a_list(tmp_path: Path) -> None:
    write(tmp_path, "digits", f"{GOOD}approve: {{before: registration}}\n")
    (asked,) = load_pipelines(tmp_path, records_container="landfall")["digits"].approve
    assert (asked.before, asked.hours, asked.on_silence) == ("registration", 24, "reject")


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


def test_without_a_file_there_are_no_queues(tmp_path: Path) -> None:
    assert load_queues(tmp_path) is None


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "queues.yml").write_text(QUEUES)
    queues = load_queues(tmp_path)
    assert queues is not None
    assert (queues.limit("vision", "cpu"), queues.limit("speech", "gpu")) == (3, 2)
    assert queues.limit("vision", "gpu") == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("weight: 2", "weight: -1", r"queues.yml:6: queues.0.weight: .*\(value: -1\)"),
        ("nodes: 4,", "", r":2: flavors.0.nodes: Field required"),
        ("nodes: 4", "nodez: 4", r":2: flavors.0.nodez: Extra inputs .*\(value: 4\)"),
        ("days: 7", "days: 0", r":9: queues.0.budget.days: .*\(value: 0\)"),
        (
            "nominal_quota: 2",
            "nominal_quota: 5",
            "flavor cpu are 5 nodes together, and it has 4",
        ),
        ("flavor: gpu", "flavor: tpu", "queue speech has a quota of the flavor 'tpu'"),
        ("name: gpu, cluster: gpu", "name: gpu, cluster: cpu", "'cpu' is twice among the clusters"),
        ("name: speech", "name: vision", "'vision' is twice among the queues"),
        (QUEUES, f"power_usage_effectiveness: 0.9\n{QUEUES}", r":1: power_usage.*\(value: 0.9\)"),
        (QUEUES, f"grams_co2e_per_kwh: -1\n{QUEUES}", r":1: grams_co2e_per_kwh: .*\(value: -1\)"),
        (QUEUES, "prices: [{size: A, watts: 0}]", r":1: prices.0.watts: .*\(value: 0\)"),
        (QUEUES, "[", "no valid YAML"),
        (QUEUES, "- a list", r":1: it is a mapping"),
    ],
)
def test_a_mistake_in_queues_is_told_with_file_line_key_and_value(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in QUEUES
    (tmp_path / "queues.yml").write_text(QUEUES.replace(old, new, 1))
    with pytest.raises(InvalidQueues, match=words) as raised:
        load_queues(tmp_path)
    assert str(tmp_path / "queues.yml") in str(raised.value)


@pytest.mark.parametrize(
    ("queues", "added", "words"),
    [
        (
            QUEUES,
            "queue: visoin",
            r":14: queue: .* has no such queue; it has vision, speech .*visoin",
        ),
        (
            QUEUES,
            "queue: speech",
            r":9: compute.0: 1 nodes of cluster cpu are more than the 0 that queue",
        ),
        (QUEUES, "", r":9: compute.0: cluster cpu is flavor cpu of queues.yml: name a queue"),
        (
            QUEUES.replace("cluster: cpu", "cluster: other"),
            "queue: vision",
            "cluster cpu is of no flavor",
        ),
        (None, "queue: vision", r":14: queue: there is no queues\.yml"),
    ],
)
def test_a_pipeline_that_does_not_fit_to_the_queues_is_refused(
    tmp_path: Path, queues: str | None, added: str, words: str
) -> None:
    if queues is not None:
        (tmp_path / "queues.yml").write_text(queues)
    write(tmp_path, "digits", f"{GOOD}{added}\n")
    with pytest.raises(InvalidPipeline, match=words):
        load_pipelines(tmp_path, records_container="landfall")


def test_a_pipeline_fits_to_its_queue(tmp_path: Path) -> None:
    (tmp_path / "queues.yml").write_text(QUEUES)
    write(tmp_path, "digits", f"{GOOD}queue: vision\n")
    assert load_pipelines(tmp_path, records_container="landfall")["digits"].queue == "vision"


def test_a_workspace_and_who_must_approve(tmp_path: Path) -> None:
    assert load_destinations(tmp_path) == {}
    (tmp_path / "workspaces.yml").write_text(WORKSPACES)
    found = load_destinations(tmp_path)["production"]
    assert found.id.endswith(
        "/resourceGroups/ml-production/providers/Microsoft.MachineLearning"
        "Services/workspaces/mlw-production"
    )
    assert found.approve is not None
    assert (found.approve.before, found.approve.hours) == ("promotion", 48)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("hours: 48", "hours: 0", r":8: workspaces\.0\.approve\.hours: .*\(value: 0\)"),
        ("hours: 48", "before: rollout", r":7: workspaces\.0\.approve: .*before is 'promotion'"),
        ("storage: Prod", "storage: https://prod", r":6: workspaces\.0\.storage: .*https://prod"),
        ("    workspace: mlw-production\n", "", r":2: workspaces\.0\.workspace: Field required"),
        (WORKSPACES, WORKSPACES + WORKSPACES.partition("\n")[2], "'production' is twice"),
        (WORKSPACES, "- a list", ":1: it is a mapping"),
    ],
)
def test_a_mistake_in_workspaces_yml_is_told_with_file_line_key_and_value(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in WORKSPACES
    (tmp_path / "workspaces.yml").write_text(WORKSPACES.replace(old, new, 1))
    with pytest.raises(InvalidWorkspaces, match=words):
        load_pipelines(tmp_path, records_container="landfall")
