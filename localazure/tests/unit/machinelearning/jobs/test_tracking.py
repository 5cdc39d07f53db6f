from __future__ import annotations

import json
from pathlib import Path

from localazure.machinelearning.jobs.tracking import ensure_run, read_metric


def test_runs_of_an_experiment_are_created_once(tmp_path: Path) -> None:
    ensure_run(tmp_path, "digits", "run-1", now=1.5)
    ensure_run(tmp_path, "digits", "run-2", now=2)
    (experiment,) = tmp_path.iterdir()
    assert json.loads((experiment / "meta.yaml").read_text())["name"] == "digits"
    assert experiment.name.isdecimal()
    (experiment / "run-1" / "metrics" / "loss").write_text("1 0.5 0\n")
    ensure_run(tmp_path, "digits", "run-1", now=9)
    run = json.loads((experiment / "run-1" / "meta.yaml").read_text())
    assert (run["run_id"], run["start_time"], run["experiment_id"]) == (
        "run-1",
        1500,
        experiment.name,
    )
    assert (experiment / "run-1" / "metrics" / "loss").read_text() == "1 0.5 0\n"


def test_a_metric_is_read_in_the_order_of_logging_without_invalid_values(tmp_path: Path) -> None:
    assert read_metric(tmp_path, "digits", "run-1", "accuracy") == ()
    ensure_run(tmp_path, "digits", "run-1", now=1)
    (experiment,) = tmp_path.iterdir()
    lines = "1 0.5 0\n2 nan 1\n3 0.25 2\n4 0.7"
    (experiment / "run-1" / "metrics" / "accuracy").write_text(lines)
    assert read_metric(tmp_path, "digits", "run-1", "accuracy") == (0.5, 0.25)
