from __future__ import annotations

import io
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.ai.ml import load_job
from azure.core.exceptions import HttpResponseError

from harness.local_workspace import SDK_WARNINGS, Local
from harness.waiting import until

pytestmark = [
    SDK_WARNINGS,
    # azure-ai-ml's downloads call azure-storage-blob in a deprecated way.
    pytest.mark.filterwarnings("ignore:The use of a 'BlobProperties':DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:content_as_bytes is deprecated:DeprecationWarning"),
]

# Writes what MLflow's client would write: importing MLflow takes seconds in each trial.
LOG = (
    'log() { echo "1 $1 0" >> "$(ls -d ${MLFLOW_TRACKING_URI#file://}/*/$MLFLOW_RUN_ID)'
    '/metrics/accuracy"; }\n'
)
LEARNING_RATES = {"type": "choice", "values": [0.1, 0.2, 0.3]}


def submit(local: Local, name: str, text: str, **changes: Any) -> None:
    document = {
        "type": "sweep",
        "name": name,
        "experiment_name": "sweeps",
        "trial": {"command": LOG + text, "environment": "azureml:torch:1"},
        "outputs": {"results": {"type": "uri_folder"}},
        "sampling_algorithm": "grid",
        "search_space": {"lr": LEARNING_RATES},
        "objective": {"goal": "maximize", "primary_metric": "accuracy"},
        "limits": {"max_total_trials": 3, "max_concurrent_trials": 3},
        **changes,
    }
    job: Any = load_job(io.StringIO(yaml.safe_dump(document)), relative_origin=__file__)
    assert local.ml.jobs.create_or_update(job).name == name


def children(local: Local, name: str) -> dict[str, str]:
    return {job.name: job.status for job in local.ml.jobs.list(parent_job_name=name)}


def test_the_best_trial_is_named_and_downloaded(local: Local, tmp_path: Path) -> None:
    text = "log ${{search_space.lr}}; echo ${{search_space.lr}} > ${{outputs.results}}/lr"
    submit(local, "tune", text)
    local.wait_for("tune", "Completed")
    assert children(local, "tune") == dict.fromkeys(("tune_0", "tune_1", "tune_2"), "Completed")
    job = local.ml.jobs.get("tune")
    assert (job.properties["best_child_run_id"], job.properties["score"]) == ("tune_2", "0.3")
    assert local.ml.jobs.get("tune_2").tags == {"hyperparameters": '{"lr": 0.3}'}
    local.ml.jobs.download("tune", download_path=tmp_path, output_name="results")
    assert (tmp_path / "named-outputs/results/lr").read_text() == "0.3\n"
    listed = [each.name for each in local.ml.jobs.list()]
    assert "tune" in listed
    assert "tune_0" not in listed


def test_mlflow_of_a_trial_is_what_the_sweep_reads(local: Local) -> None:
    pytest.importorskip("mlflow")
    text = "python -c 'import mlflow; mlflow.log_metric(\"accuracy\", ${{search_space.lr}})'"
    limits = {"max_total_trials": 1}
    space = {"lr": {"type": "uniform", "min_value": 0.5, "max_value": 0.6}}
    submit(local, "tracked", text, limits=limits, search_space=space, sampling_algorithm="random")
    local.wait_for("tracked", "Completed")
    assert 0.5 <= float(local.ml.jobs.get("tracked").properties["score"]) <= 0.6


def test_trials_wait_for_their_turn(local: Local, tmp_path: Path) -> None:
    text = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; log 1"
    submit(local, "turns", text, limits={"max_total_trials": 3, "max_concurrent_trials": 1})
    local.wait_for("turns_0", "Running")
    assert list(children(local, "turns")) == ["turns_0"]
    (tmp_path / "go").touch()
    local.wait_for("turns", "Completed")
    assert len(children(local, "turns")) == 3


def test_a_bandit_ends_a_trial_that_falls_behind(local: Local) -> None:
    text = (
        "log ${{search_space.lr}}; "
        "if [ ${{search_space.lr}} = 0.1 ]; then sleep 600; else sleep 2; fi"
    )
    policy = {"type": "bandit", "slack_amount": 0.05, "evaluation_interval": 1}
    space = {"lr": {"type": "choice", "values": [0.1, 0.3]}}
    submit(local, "bandit", text, early_termination=policy, search_space=space)
    local.wait_for("bandit", "Completed")
    assert children(local, "bandit") == {"bandit_0": "Canceled", "bandit_1": "Completed"}
    assert local.ml.jobs.get("bandit").properties["best_child_run_id"] == "bandit_1"


def test_cancelling_ends_all_trials(local: Local) -> None:
    submit(
        local,
        "stop-tuning",
        "sleep 600",
        limits={"max_total_trials": 3, "max_concurrent_trials": 2},
    )
    local.wait_for("stop-tuning_1", "Running")
    local.ml.jobs.begin_cancel("stop-tuning").result()
    local.wait_for("stop-tuning", "Canceled")
    assert set(children(local, "stop-tuning").values()) == {"Canceled"}


def test_a_sweep_without_a_trial_that_succeeds_fails(local: Local) -> None:
    submit(local, "hopeless", "exit 3")
    local.wait_for("hopeless", "Failed")
    assert set(children(local, "hopeless").values()) == {"Failed"}


def test_a_sweep_that_cannot_run_is_refused(local: Local) -> None:
    space = {"lr": {"type": "uniform", "min_value": 0, "max_value": 1}}
    with pytest.raises(HttpResponseError, match="grid sampling takes `choice` only"):
        submit(local, "refused", "true", search_space=space)
    with pytest.raises(HttpResponseError, match="not in the search space"):
        submit(local, "refused", "echo ${{search_space.other}}")


def test_a_sweep_goes_on_when_the_workspace_is_killed(local: Local, tmp_path: Path) -> None:
    text = (
        f"echo x >> {tmp_path}/${{{{search_space.lr}}}}; "
        f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; log ${{{{search_space.lr}}}}"
    )
    submit(local, "survives", text, limits={"max_total_trials": 3, "max_concurrent_trials": 2})
    local.wait_for("survives_1", "Running")
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    local.workspace.end(signal.SIGKILL)
    local.workspace.start()
    (tmp_path / "go").touch()
    local.wait_for("survives", "Completed")
    assert children(local, "survives") == {f"survives_{n}": "Completed" for n in range(3)}
    assert local.ml.jobs.get("survives").properties["best_child_run_id"] == "survives_2"
