from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.local_workspace import ENVIRONMENT, Local
from localazure.machinelearning.jobs.tracking import NO_SERVER

# Writes the same file as MLflow's client, whose import would take seconds in each trial.
LOG = (
    'log() { echo "1 $1 0" >> "$(ls -d ${MLFLOW_TRACKING_URI#file://}/*/$MLFLOW_RUN_ID)'
    '/metrics/accuracy"; }\n'
)


def submit(local: Local, name: str, text: str, **changes: Any) -> None:
    local.submit_document(
        {
            "type": "sweep",
            "name": name,
            "trial": {"command": LOG + text, "environment": ENVIRONMENT},
            "outputs": {"results": {"type": "uri_folder", "name": f"{name}-results"}},
            "sampling_algorithm": "grid",
            "search_space": {"lr": {"type": "choice", "values": [0.1, 0.2, 0.3]}},
            "objective": {"goal": "maximize", "primary_metric": "accuracy"},
            "limits": {"max_total_trials": 3, "max_concurrent_trials": 3},
            **changes,
        }
    )


def test_the_best_trial_is_named_and_downloaded(local: Local, tmp_path: Path) -> None:
    text = "log ${{search_space.lr}}; echo ${{search_space.lr}} > ${{outputs.results}}/lr"
    submit(local, "tune", text)
    local.wait_for("tune", "Completed")
    assert local.children("tune") == dict.fromkeys(("tune_0", "tune_1", "tune_2"), "Completed")
    job = local.ml.jobs.get("tune")
    assert (job.properties["best_child_run_id"], job.properties["score"]) == ("tune_2", "0.3")
    assert local.ml.jobs.get("tune_2").tags == {"hyperparameters": '{"lr": 0.3}'}
    local.ml.jobs.download("tune", download_path=tmp_path, output_name="results")
    assert (tmp_path / "named-outputs/results/lr").read_text() == "0.3\n"
    (best,) = local.ml.data.list(name="tune-results")
    assert (best.version, best.path.endswith("/azureml/tune_2/results/")) == ("1", True)
    listed = [each.name for each in local.ml.jobs.list()]
    assert "tune" in listed
    assert "tune_0" not in listed


# Has no single quotes: the shell passes it to Python in single quotes.
MLFLOW = """
import mlflow
mlflow.log_metric("accuracy", ${{search_space.lr}})
try:
    mlflow.MlflowClient().create_registered_model("digits")
except mlflow.MlflowException as error:
    print(error)
"""


def test_mlflow_of_a_trial_is_what_the_sweep_reads(local: Local) -> None:
    """The registration of a model fails with an error that says what to use instead."""
    text = f"python -c '{MLFLOW}'"
    limits = {"max_total_trials": 1}
    space = {"lr": {"type": "uniform", "min_value": 0.5, "max_value": 0.6}}
    submit(local, "tracked", text, limits=limits, search_space=space, sampling_algorithm="random")
    local.wait_for("tracked", "Completed")
    assert 0.5 <= float(local.ml.jobs.get("tracked").properties["score"]) <= 0.6
    assert NO_SERVER in local.log("tracked_0")
