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

from localazure.machinelearning.events import DEFAULT_EXPERIMENT
from localazure.processes.atomic_file import write_atomically

NO_SERVER = (
    "localazure-runs-no-mlflow-server://pip-install-mlflow-and-set-mlflowServerPort-in-azure-ml.json"
    "-or-use-ml_client.models"
)
"""A tracking and registry URI of no server: MLflow's errors name it, and so say what to do."""
ALLOW_FILES = {"MLFLOW_ALLOW_FILE_STORE": "true"}
"""Without this, MLflow 3 requires a database, where a run's id cannot be chosen."""

_META = "meta.yaml"
_RUN_FOLDERS = ("metrics", "params", "tags", "artifacts")
_SOURCE_TYPE_LOCAL = 4
_STATUS_RUNNING = 1
_METRIC_COLUMNS = 3


def tracking_environment(
    store: Path, experiment: str, run: str, *, server: str | None = None
) -> dict[str, str]:
    """The environment variables with which MLflow finds the run: in files, or at a server."""
    names = {"MLFLOW_EXPERIMENT_NAME": experiment, "MLFLOW_RUN_ID": run}
    if server is not None:
        return {"MLFLOW_TRACKING_URI": server, **names}
    return {
        "MLFLOW_TRACKING_URI": store.as_uri(),
        **names,
        **ALLOW_FILES,
        # Makes the registration of a model fail, with this text in MLflow's error: with a file
        # store it would succeed, but neither the workspace nor a server would have the model.
        "MLFLOW_REGISTRY_URI": NO_SERVER,
    }


def ensure_run(store: Path, experiment: str, run: str, *, now: float) -> None:
    """Create the experiment and the run unless they exist.

    The job's name becomes the run's id and name. `now` is in epoch seconds.
    """
    run_folder = ensure_experiment(store, experiment, now=now) / run
    for name in _RUN_FOLDERS:
        (run_folder / name).mkdir(parents=True, exist_ok=True)
    _write_once(
        run_folder,
        {
            "artifact_uri": (run_folder / "artifacts").as_uri(),
            "end_time": None,
            "entry_point_name": "",
            "experiment_id": run_folder.parent.name,
            "lifecycle_stage": "active",
            "run_id": run,
            "run_name": run,
            "source_name": "",
            "source_type": _SOURCE_TYPE_LOCAL,
            "source_version": "",
            "start_time": int(now * 1000),
            "status": _STATUS_RUNNING,
            "tags": [],
            "user_id": "localazure",
        },
    )


def ensure_experiment(store: Path, experiment: str, *, now: float) -> Path:
    """Create an experiment unless it exists, and return its folder. `now` is in epoch seconds."""
    folder = store / _experiment_id(experiment)
    folder.mkdir(parents=True, exist_ok=True)
    _write_once(
        folder,
        {
            "artifact_location": folder.as_uri(),
            "creation_time": int(now * 1000),
            "experiment_id": folder.name,
            "last_update_time": int(now * 1000),
            "lifecycle_stage": "active",
            "name": experiment,
        },
    )
    return folder


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
    folders = {"": experiment_folder / run / "artifacts"}
    for link in sorted((experiment_folder / run / "outputs").glob("m-*")):
        model = experiment_folder / "models" / link.name
        lines = (model / _META).read_text("utf-8").splitlines() if model.is_dir() else ()
        names = (line.removeprefix("name:") for line in lines if line.startswith("name:"))
        folders |= {name.strip(" '\""): model / "artifacts" for name in names}
    return folders


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _experiment_id(experiment: str) -> str:
    """Derive an experiment's id, a decimal number, from its name; MLflow's own default has 0."""
    if experiment == DEFAULT_EXPERIMENT:
        return "0"
    return str(int.from_bytes(hashlib.sha256(experiment.encode()).digest()[:7]))


def _write_once(folder: Path, meta: dict[str, Any]) -> None:
    target = folder / _META
    if not target.exists():
        write_atomically(target, json.dumps(meta, indent=2))  # JSON is valid YAML
