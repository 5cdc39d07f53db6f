"""Numbers of a run while it trains: its learning curve, TensorBoard, MLflow.

| to | when | a resumed run |
|---|---|---|
| the learning curve | always | has all of it: it is saved with each checkpoint |
| TensorBoard, `tensorboard/` | tensorboard is installed | hides the steps that it does again |
| MLflow | mlflow is installed and MLFLOW_TRACKING_URI is set | logs what is not there yet |

The last two get the curve of before the checkpoint, too, if they do not have it: the next attempt
of a job has an output folder and an MLflow run of its own. The run is MLFLOW_RUN_ID, as Azure ML
sets it, or else found or made by the training's fingerprint in MLFLOW_EXPERIMENT_NAME.

A listener that fails is logged once and dropped: it never costs a step. MLflow's requests are made
by a thread, in batches.

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
_FLUSH_SECONDS = 5  # TensorBoard shows what is in the file
_BATCH = 1000  # metrics of one request: MLflow's limit
_PATIENCE_SECONDS = 30.0  # at the end, for a server that is slow
_FINGERPRINT_TAG = "landfall.fingerprint"

Numbers = Mapping[str, float]
Track = Callable[[int, Numbers], None]
Metrics = queue.SimpleQueue[tuple[str, float, int, int] | None]
"""Name, value, milliseconds and step of each; None after the last."""
Point = dict[str, float]
"""Numbers of after `step` steps."""


@dataclass(kw_only=True)
class LearningCurve:
    """A run's losses by step, over all of its starts."""

    train: list[Point] = field(default_factory=list[Point])
    """`step`, the mean `loss` of its batch, and the `learning_rate` that it was done at."""
    held_out: list[Point] = field(default_factory=list[Point])
    """`step`, and the model's `loss` and `accuracy` on the held-out images."""

    def to_bytes(self) -> bytes:
        """As a checkpoint has it."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> LearningCurve:
        """The inverse of `to_bytes`."""
        return cls(**json.loads(content))


def train_numbers(point: Point) -> Numbers:
    """A point of training by its names in TensorBoard and MLflow."""
    return {"train_loss": point["loss"], "learning_rate": point["learning_rate"]}


def held_out_numbers(point: Point) -> Numbers:
    """A point of an evaluation by its names in TensorBoard and MLflow."""
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
    """Find TensorBoard and MLflow, and give them what they lack of the curve so far.

    Args:
        output: the run's output folder.
        fingerprint: of the training: the same for each start of a run.
        resumed_from_step: the steps done before this start.
        curve: of these steps.
        log: gets a line about each listener that fails.

    Yields:
        What takes the numbers of after so many steps.
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
    return f"warning: metrics are not tracked any more: {type(error).__name__}: {reason}"


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

    # Earlier starts with the same output folder wrote events: those up to the checkpoint stay.
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
    """The run that an earlier start of the same training made, or a new one."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "landfall")
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
    query = f"tags.`{_FINGERPRINT_TAG}` = '{fingerprint}'"
    for run in client.search_runs([experiment_id], query, max_results=1):
        client.update_run(run.info.run_id, status="RUNNING")
        return run.info.run_id
    return client.create_run(experiment_id, tags={_FINGERPRINT_TAG: fingerprint}).info.run_id
