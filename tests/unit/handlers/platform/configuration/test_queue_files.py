from __future__ import annotations

from pathlib import Path

import pytest

from handlers.platform.configuration.pipeline_files import load_pipelines, load_queues
from orchestrations.errors import InvalidPipeline, InvalidQueues
from tests.unit.handlers.platform.configuration.test_pipeline_files import GOOD as PIPELINE
from tests.unit.handlers.platform.configuration.test_pipeline_files import write

GOOD = """\
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


def test_without_a_file_there_are_no_queues(tmp_path: Path) -> None:
    assert load_queues(tmp_path) is None


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "queues.yml").write_text(GOOD)
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
        (GOOD, "[", "no valid YAML"),
        (GOOD, "- a list", r":1: it is a mapping"),
    ],
)
def test_a_mistake_is_told_with_file_line_key_and_value(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in GOOD
    (tmp_path / "queues.yml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InvalidQueues, match=words) as raised:
        load_queues(tmp_path)
    assert str(tmp_path / "queues.yml") in str(raised.value)


@pytest.mark.parametrize(
    ("queues", "added", "words"),
    [
        (
            GOOD,
            "queue: visoin",
            r":14: queue: .* has no such queue; it has vision, speech .*visoin",
        ),
        (
            GOOD,
            "queue: speech",
            r":9: compute.0: 1 nodes of cluster cpu are more than the 0 that queue",
        ),
        (GOOD, "", r":9: compute.0: cluster cpu is flavor cpu of queues.yml: name a queue"),
        (
            GOOD.replace("cluster: cpu", "cluster: other"),
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
    write(tmp_path, "digits", f"{PIPELINE}{added}\n")
    with pytest.raises(InvalidPipeline, match=words):
        load_pipelines(tmp_path, records_container="landfall")


def test_a_pipeline_fits_to_its_queue(tmp_path: Path) -> None:
    (tmp_path / "queues.yml").write_text(GOOD)
    write(tmp_path, "digits", f"{PIPELINE}queue: vision\n")
    assert load_pipelines(tmp_path, records_container="landfall")["digits"].queue == "vision"
