"""TensorBoard events and MLflow's file store, written by runs that are killed and resumed."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainers.reports.tracking import FOLDER_NAME, LearningCurve, Track, tracking

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

RUN = "digits-96fec724a34af9b5-1"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file store, and the variables that make MLflow use it."""
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    store = tmp_path / "mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return store


def client(store: Path) -> MlflowClient:
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - over a second, for this file

    return MlflowClient(store.as_uri())


def begin(
    output: Path, said: list[str], *, resumed_from_step: int = 0, curve: LearningCurve | None = None
) -> AbstractContextManager[Track]:
    return tracking(
        output,
        fingerprint="f1",
        resumed_from_step=resumed_from_step,
        curve=curve or LearningCurve(),
        log=said.append,
    )


def curve_to(step: int) -> LearningCurve:
    return LearningCurve(
        train=[{"step": n, "loss": 1 / n, "learning_rate": 0.1} for n in range(1, step + 1)],
        held_out=[{"step": step, "loss": 0.5, "accuracy": 0.75}],
    )


def tensorboard(output: Path) -> dict[str, list[tuple[int, float]]]:
    events: Any = EventAccumulator(str(output / FOLDER_NAME)).Reload()
    return {
        name: [(event.step, round(event.value, 6)) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def mlflow(store: Path, run: str, name: str) -> list[tuple[int, float]]:
    history = client(store).get_metric_history(run, name)
    return [(metric.step, metric.value) for metric in history]


def only_run(store: Path) -> Any:
    experiment = client(store).get_experiment_by_name("landfall")
    assert experiment is not None
    runs: Any = client(store).search_runs([experiment.experiment_id])
    (run,) = runs
    return run


def log(tracking: AbstractContextManager[Track], *steps: int) -> None:
    with tracking as track:
        for step in steps:
            track(step, {"train_loss": 1 / step})


LOSSES = [(step, 1 / step) for step in range(1, 7)]


def test_a_resumed_run_doubles_no_step(store: Path, tmp_path: Path, said: list[str]) -> None:
    log(begin(tmp_path, said), 1, 2, 3, 4, 5)
    log(begin(tmp_path, said, resumed_from_step=3, curve=curve_to(3)), 4, 5, 6)
    assert tensorboard(tmp_path)["train_loss"] == [(n, round(loss, 6)) for n, loss in LOSSES]
    run = only_run(store)
    assert mlflow(store, run.info.run_id, "train_loss") == LOSSES
    assert run.info.status == "FINISHED"
    assert said == []


def test_the_next_attempt_has_the_curve_of_before(
    store: Path, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt has a new output folder and, on Azure ML, a new MLflow run."""
    experiment = client(store).create_experiment("digits")
    for attempt in ("one", "two"):
        run = client(store).create_run(experiment).info.run_id
        monkeypatch.setenv("MLFLOW_RUN_ID", run)
        output = tmp_path / attempt
        if attempt == "one":
            log(begin(output, said), 1, 2, 3)
        else:
            log(begin(output, said, resumed_from_step=3, curve=curve_to(3)), 4, 5, 6)
    assert tensorboard(output)["train_loss"] == [(n, round(loss, 6)) for n, loss in LOSSES]
    assert tensorboard(output)["held_out_accuracy"] == [(3, 0.75)]
    assert mlflow(store, run, "train_loss") == LOSSES
    assert mlflow(store, run, "held_out_accuracy") == [(3, 0.75)]
    assert client(store).get_run(run).info.status == "RUNNING"  # the job's own: it ends it
    assert said == []


@pytest.mark.usefixtures("store")
def test_what_cannot_be_tracked_is_said_once_and_costs_nothing(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER_NAME).write_text("in the way of the folder")
    monkeypatch.setenv("MLFLOW_RUN_ID", "no-such-run")
    log(begin(tmp_path, said), 1, 2, 3)
    assert len(said) == 2
    assert "FileExistsError" in said[0]
    assert "MlflowException" in said[1]
    assert "no-such-run" in said[1]


def test_without_a_tracking_uri_mlflow_is_left_alone(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    log(begin(tmp_path, said), 1)
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER_NAME]
    assert said == []


def test_a_run_tracks_its_numbers_while_it_trains(store: Path, train: Any) -> None:
    variables = {name: os.environ[name] for name in os.environ if name.startswith("MLFLOW_")}
    done = train("--evaluate-every", "1", ranks=1, further=variables)
    metrics = done.result("metrics")
    run = only_run(store).info.run_id
    shown = tensorboard(done.folder / "results")
    assert dict(shown["train_loss"]) == pytest.approx(done.losses)
    assert dict(mlflow(store, run, "train_loss")) == pytest.approx(done.losses, abs=1e-6)
    assert [step for step, _ in mlflow(store, run, "held_out_accuracy")] == [4, 8]
    assert mlflow(store, run, "accuracy") == [(8, metrics["accuracy"])]
    assert min(rate for _, rate in shown["images_per_second"]) > 0
    assert "warning: metrics" not in done.seen
