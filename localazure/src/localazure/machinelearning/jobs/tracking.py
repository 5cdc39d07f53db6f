"""The MLflow run of a job, in an MLflow file store in the state folder.

Azure ML creates the run before the job starts and puts its id in MLFLOW_RUN_ID, so that
`mlflow.log_metric` works without `start_run`. A file store needs no server and, unlike other
stores, allows a chosen run id. A job that is queued again appends metrics to the same run.

Layout: https://github.com/mlflow/mlflow/blob/master/mlflow/store/tracking/file_store.py
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from localazure.processes.atomic_file import write_atomically

NO_REGISTRY = "localazure-does-not-cover-mlflows-registry://use-ml_client.models"

_META = "meta.yaml"
_RUN_FOLDERS = ("metrics", "params", "tags", "artifacts")
_SOURCE_TYPE_LOCAL = 4
_STATUS_RUNNING = 1
_METRIC_COLUMNS = 3


def tracking_environment(store: Path, experiment: str, run: str) -> dict[str, str]:
    """The environment variables with which MLflow finds the run."""
    return {
        "MLFLOW_TRACKING_URI": store.as_uri(),
        "MLFLOW_EXPERIMENT_NAME": experiment,
        "MLFLOW_RUN_ID": run,
        # Without this, MLflow 3 requires a database, where a run's id cannot be chosen.
        "MLFLOW_ALLOW_FILE_STORE": "true",
        # Makes the registration of a model fail, with this text in MLflow's error: with a file
        # store it would succeed, but the workspace would not have the model.
        "MLFLOW_REGISTRY_URI": NO_REGISTRY,
    }


def ensure_run(store: Path, experiment: str, run: str, *, now: float) -> None:
    """Create the experiment and the run unless they exist.

    The job's name becomes the run's id and name. `now` is in epoch seconds.
    """
    milliseconds = int(now * 1000)
    experiment_id = _experiment_id(experiment)
    experiment_folder = store / experiment_id
    run_folder = experiment_folder / run
    for name in _RUN_FOLDERS:
        (run_folder / name).mkdir(parents=True, exist_ok=True)
    _write_once(
        experiment_folder,
        {
            "artifact_location": experiment_folder.as_uri(),
            "creation_time": milliseconds,
            "experiment_id": experiment_id,
            "last_update_time": milliseconds,
            "lifecycle_stage": "active",
            "name": experiment,
        },
    )
    _write_once(
        run_folder,
        {
            "artifact_uri": (run_folder / "artifacts").as_uri(),
            "end_time": None,
            "entry_point_name": "",
            "experiment_id": experiment_id,
            "lifecycle_stage": "active",
            "run_id": run,
            "run_name": run,
            "source_name": "",
            "source_type": _SOURCE_TYPE_LOCAL,
            "source_version": "",
            "start_time": milliseconds,
            "status": _STATUS_RUNNING,
            "tags": [],
            "user_id": "localazure",
        },
    )


def read_metric(store: Path, experiment: str, run: str, metric: str) -> tuple[float, ...]:
    """The finite values that a run has logged for a metric, in the order of logging."""
    file = store / _experiment_id(experiment) / run / "metrics" / metric
    try:
        lines = file.read_text("utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    # Each line has time, value and step. The last line may be incomplete.
    columns = (line.split() for line in lines)
    values = (_number(line[1]) for line in columns if len(line) == _METRIC_COLUMNS)
    return tuple(value for value in values if math.isfinite(value))


def logged_artifacts(store: Path, experiment: str, run: str) -> dict[str, Path]:
    """The folders that a run has logged, by their path in its artifacts; "" has those without one.

    MLflow 3 keeps models beside the runs, and links them from the runs that logged them.
    """
    experiment_folder = store / _experiment_id(experiment)
    found = {"": experiment_folder / run / "artifacts"}
    for link in sorted((experiment_folder / run / "outputs").glob("m-*")):
        model = experiment_folder / "models" / link.name
        lines = (model / _META).read_text("utf-8").splitlines() if model.is_dir() else ()
        names = (line.removeprefix("name:") for line in lines if line.startswith("name:"))
        found |= {name.strip(" '\""): model / "artifacts" for name in names}
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _experiment_id(experiment: str) -> str:
    """Derive an experiment's id, a decimal number, from its name."""
    return str(int.from_bytes(hashlib.sha256(experiment.encode()).digest()[:7]))


def _write_once(folder: Path, meta: dict[str, Any]) -> None:
    target = folder / _META
    if not target.exists():
        write_atomically(target, json.dumps(meta, indent=2))  # JSON is valid YAML
