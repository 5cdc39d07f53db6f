"""Metrics during training: the learning curve, TensorBoard, MLflow.

| destination | condition | after a resume |
|---|---|---|
| the learning curve | always | complete: it is saved with each checkpoint |
| TensorBoard, `tensorboard/` | tensorboard is installed | repeated steps are hidden |
| MLflow | mlflow is installed and MLFLOW_TRACKING_URI is set | only missing steps are logged |

The last two also get the points from before the checkpoint if they lack them: the next attempt of a
job has a new output folder and MLflow run. The run is MLFLOW_RUN_ID, which Azure ML sets, or else
the one in MLFLOW_EXPERIMENT_NAME with the training's fingerprint, created if necessary.

A listener that fails is logged once and dropped, and never stops the training. A thread sends
MLflow's requests, in batches.

Sources: docs.pytorch.org (torch.utils.tensorboard, `purge_step`), mlflow.org (MlflowClient).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

FOLDER_NAME = "tensorboard"
_FLUSH_SECONDS = 5  # TensorBoard shows only flushed points
_BATCH = 1000  # metrics per request: MLflow's limit
_PATIENCE_SECONDS = 30.0  # the wait for a slow server at the end of the run
_FINGERPRINT_TAG = "landfall.fingerprint"

Numbers = Mapping[str, float]
Track = Callable[[int, Numbers], None]
Metrics = queue.SimpleQueue[tuple[str, float, int, int] | None]
"""(Name, value, milliseconds, step) of each metric; None marks the end."""
Point = dict[str, float]
"""Metrics by name, and the `step` after which they were measured."""


@dataclass(kw_only=True)
class LearningCurve:
    """A run's losses by step, of all its starts."""

    train: list[Point] = field(default_factory=list[Point])
    """Points with `step`, the mean `loss` of its batch, and its `learning_rate`."""
    held_out: list[Point] = field(default_factory=list[Point])
    """Points with `step`, and the model's `loss` and `accuracy` on the held-out images."""

    speeds: list[Point] = field(default_factory=list[Point])
    """Of the last start on each number of `devices`, `images_per_second_per_device`."""

    def add_speed(self, speed: Mapping[str, float]) -> None:
        """Record the speed of this start until now."""
        point = {name: speed[name] for name in ("devices", "images_per_second_per_device")}
        others = [each for each in self.speeds if each["devices"] != point["devices"]]
        self.speeds = [*others, point]

    def best(self) -> Point:
        """Return the first point with the highest accuracy on the held-out images."""
        return max(self.held_out, key=lambda point: point["accuracy"])

    def evaluations_since_best(self) -> int:
        """Return the number of later evaluations, none of which was better."""
        points = self.held_out
        return len(points) - 1 - points.index(self.best()) if points else 0

    def to_bytes(self) -> bytes:
        """Return the curve as JSON, for a checkpoint."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> LearningCurve:
        """The inverse of `to_bytes`."""
        return cls(**json.loads(content))


def train_numbers(point: Point) -> Numbers:
    """Return a training point with the metric names of TensorBoard and MLflow."""
    return {"train_loss": point["loss"], "learning_rate": point["learning_rate"]}


def held_out_numbers(point: Point) -> Numbers:
    """Return an evaluation's point with the metric names of TensorBoard and MLflow."""
    return {"held_out_loss": point["loss"], "held_out_accuracy": point["accuracy"]}


@contextlib.contextmanager
def tracking(
    output: Path,
    *,
    fingerprint: str,
    resumed_from_step: int,
    curve: LearningCurve,
    log: Callable[[str], None],
) -> Generator[Track]:
    """Open TensorBoard and MLflow, if available, and send the points of `curve` that they lack.

    Args:
        output: the run's output folder.
        fingerprint: the training's fingerprint, the same for each start of a run.
        resumed_from_step: the number of steps done before this start.
        curve: the learning curve of these steps.
        log: is called with a line about each listener that fails.

    Yields:
        A function that tracks metrics: it takes a step and numbers by name.
    """
    listeners: list[Track] = []

    def track(step: int, numbers: Numbers) -> None:
        for listener in list(listeners):
            try:
                listener(step, numbers)
            except Exception as error:  # noqa: BLE001  # it never costs a step
                listeners.remove(listener)
                log(_loss(error))

    opened = contextlib.ExitStack()
    for listener in _listeners(output / FOLDER_NAME, fingerprint, resumed_from_step, log):
        try:
            listeners.append(opened.enter_context(listener))
        except Exception as error:  # noqa: BLE001  # the same
            log(_loss(error))
    for point in curve.train:
        track(int(point["step"]), train_numbers(point))
    for point in curve.held_out:
        track(int(point["step"]), held_out_numbers(point))
    try:
        yield track
    finally:
        try:
            opened.close()
        except Exception as error:  # noqa: BLE001  # the same
            log(_loss(error))


def _loss(error: Exception) -> str:
    reason = str(error).partition("\n")[0]
    return f"warning: metrics are no longer tracked: {type(error).__name__}: {reason}"


def _listeners(
    folder: Path, fingerprint: str, resumed_from_step: int, log: Callable[[str], None]
) -> Generator[contextlib.AbstractContextManager[Track]]:
    if importlib.util.find_spec("tensorboard") is not None:
        yield _tensorboard(folder, resumed_from_step)
    if "MLFLOW_TRACKING_URI" in os.environ:
        if importlib.util.find_spec("mlflow") is not None:
            yield _mlflow(fingerprint, log)
        else:
            log("MLFLOW_TRACKING_URI is set, but mlflow is not installed: nothing is logged")


@contextlib.contextmanager
def _tensorboard(folder: Path, resumed_from_step: int) -> Generator[Track]:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  # optional

    # Keep the events of earlier starts with this output folder, up to the checkpoint.
    has = resumed_from_step if any(folder.glob("events.*")) else 0
    with SummaryWriter(str(folder), purge_step=has + 1, flush_secs=_FLUSH_SECONDS) as writer:

        def track(step: int, numbers: Numbers) -> None:
            if step > has:
                for name, value in numbers.items():
                    writer.add_scalar(name, value, step)

        yield track


@contextlib.contextmanager
def _mlflow(fingerprint: str, log: Callable[[str], None]) -> Generator[Track]:
    metrics: Metrics = queue.SimpleQueue()
    thread = threading.Thread(target=_send_all, args=(metrics, fingerprint, log), daemon=True)
    thread.start()

    def track(step: int, numbers: Numbers) -> None:
        milliseconds = int(time.time() * 1000)
        for name, value in numbers.items():
            metrics.put((name, value, milliseconds, step))

    yield track
    metrics.put(None)
    thread.join(_PATIENCE_SECONDS)
    if thread.is_alive():
        raise TimeoutError(f"MLflow did not answer within {_PATIENCE_SECONDS:g} s")


def _send_all(given: Metrics, fingerprint: str, log: Callable[[str], None]) -> None:
    try:
        from mlflow.entities import Metric  # noqa: PLC0415  # optional
        from mlflow.tracking import MlflowClient  # noqa: PLC0415  # optional, and slow

        client = MlflowClient()
        run_of_job = os.environ.get("MLFLOW_RUN_ID")
        run = run_of_job or _own_run(client, fingerprint)
        last_steps: dict[str, int] = {}
        metrics: list[Metric] = []
        for name, value, milliseconds, step in iter(given.get, None):
            if name not in last_steps:
                history = client.get_metric_history(run, name)
                last_steps[name] = max((metric.step for metric in history), default=0)
            if step > last_steps[name]:
                metrics.append(Metric(name, value, milliseconds, step))
            if metrics and (given.empty() or len(metrics) == _BATCH):
                client.log_batch(run, metrics=metrics)
                metrics = []
        if metrics:
            client.log_batch(run, metrics=metrics)
        if run_of_job is None:
            client.set_terminated(run)
    except Exception as error:  # noqa: BLE001  # it never costs a step
        log(_loss(error))


def _own_run(client: MlflowClient, fingerprint: str) -> str:
    """Return the run of an earlier start of the same training, or a new one."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "landfall")
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
    query = f"tags.`{_FINGERPRINT_TAG}` = '{fingerprint}'"
    for run in client.search_runs([experiment_id], query, max_results=1):
        client.update_run(run.info.run_id, status="RUNNING")
        return run.info.run_id
    return client.create_run(experiment_id, tags={_FINGERPRINT_TAG: fingerprint}).info.run_id
