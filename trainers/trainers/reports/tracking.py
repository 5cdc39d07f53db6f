"""Numbers of a run while it trains, to TensorBoard and MLflow where they are installed.

| to | when | a resumed run |
|---|---|---|
| TensorBoard, `tensorboard/` | tensorboard is installed | hides the steps that it does again |
| MLflow | mlflow is installed and MLFLOW_TRACKING_URI is set | logs what is not there yet |

Both get the curve of before the checkpoint, too, if they do not have it: the next attempt of a
job has an output folder and an MLflow run of its own. The run is MLFLOW_RUN_ID, as Azure ML sets
it, or else found or made by the training's fingerprint in the experiment MLFLOW_EXPERIMENT_NAME.

A listener that fails is logged once and dropped: it never costs a step. MLflow's requests are made
by a thread, in batches.

Sources: docs.pytorch.org (torch.utils.tensorboard, `purge_step`), mlflow.org (MlflowClient).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainers.reports.learning_curve import LearningCurve, Point

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from trainers.loop import Run

FOLDER_NAME = "tensorboard"
_FLUSH_SECONDS = 5  # TensorBoard shows what is in the file
_BATCH = 1000  # metrics of one request: MLflow's limit
_PATIENCE_SECONDS = 30.0  # at the end, for a server that is slow
_FINGERPRINT_TAG = "landfall.fingerprint"
_DEFAULT_EXPERIMENT = "landfall"

Numbers = Mapping[str, float]
Track = Callable[[int, Numbers], None]


def train_numbers(point: Point) -> Numbers:
    """A point of training by its names in TensorBoard and MLflow."""
    return {"train_loss": point["loss"], "learning_rate": point["learning_rate"]}


def held_out_numbers(point: Point) -> Numbers:
    """A point of an evaluation by its names in TensorBoard and MLflow."""
    return {"held_out_loss": point["loss"], "held_out_accuracy": point["accuracy"]}


@contextlib.contextmanager
def tracked(run: Run) -> Generator[None]:
    """While this is open, the numbers of rank 0 of a run go to its listeners."""
    if not run.world.is_first:
        yield
        return
    with tracking(
        run.settings.output_dir,
        fingerprint=run.identity.fingerprint(),
        resumed_from_step=run.resumed_from_step,
        curve=run.curve,
        log=run.log,
    ) as run.track:
        yield


@contextlib.contextmanager
def tracking(
    output: Path,
    *,
    fingerprint: str,
    resumed_from_step: int,
    curve: LearningCurve,
    log: Callable[[str], None],
) -> Generator[Track]:
    """Find the listeners, and give them what they lack of the curve so far.

    Args:
        output: the run's output folder.
        fingerprint: of the training: the same for each start of a run.
        resumed_from_step: the steps done before this start.
        curve: of the steps done before this start.
        log: gets a line about each listener that fails.

    Yields:
        What takes the numbers of after so many steps.
    """
    listeners = _Listeners(log)
    if importlib.util.find_spec("tensorboard") is not None:
        listeners.add(lambda: _TensorBoard(output / FOLDER_NAME, resumed_from_step))
    if "MLFLOW_TRACKING_URI" in os.environ:
        if importlib.util.find_spec("mlflow") is None:
            log("MLFLOW_TRACKING_URI is set, but mlflow is not installed: nothing is logged")
        else:
            listeners.add(lambda: _MLflow(fingerprint, listeners.log_loss))
    for point in curve.train:
        listeners.track(int(point["step"]), train_numbers(point))
    for point in curve.held_out:
        listeners.track(int(point["step"]), held_out_numbers(point))
    try:
        yield listeners.track
    finally:
        listeners.close()


class _Listener(Protocol):
    def log(self, step: int, numbers: Numbers) -> None: ...
    def close(self) -> None: ...


class _Listeners:
    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._listening: list[_Listener] = []

    def add(self, make: Callable[[], _Listener]) -> None:
        try:
            self._listening.append(make())
        except Exception as error:  # noqa: BLE001  # it never costs a step
            self.log_loss(error)

    def track(self, step: int, numbers: Numbers) -> None:
        self._each(lambda listener: listener.log(step, numbers))

    def close(self) -> None:
        self._each(lambda listener: listener.close())

    def _each(self, do: Callable[[_Listener], None]) -> None:
        for listener in list(self._listening):
            try:
                do(listener)
            except Exception as error:  # noqa: BLE001  # it never costs a step
                self._listening.remove(listener)
                self.log_loss(error)

    def log_loss(self, error: Exception) -> None:
        reason = str(error).splitlines()[0] if str(error) else ""
        self._log(f"warning: metrics are not tracked any more: {type(error).__name__}: {reason}")


class _TensorBoard:
    def __init__(self, folder: Path, resumed_from_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  # optional

        # Earlier starts with the same output folder wrote events: those up to the checkpoint stay.
        self._has = resumed_from_step if any(folder.glob("events.*")) else 0
        self._writer = SummaryWriter(
            str(folder), purge_step=self._has + 1, flush_secs=_FLUSH_SECONDS
        )

    def log(self, step: int, numbers: Numbers) -> None:
        if step > self._has:
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _MLflow:
    def __init__(self, fingerprint: str, log_loss: Callable[[Exception], None]) -> None:
        self._fingerprint = fingerprint
        self._log_loss = log_loss
        self._queue: queue.SimpleQueue[tuple[str, float, int, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="mlflow", daemon=True)
        self._thread.start()

    def log(self, step: int, numbers: Numbers) -> None:
        milliseconds = int(time.time() * 1000)
        for name, value in numbers.items():
            self._queue.put((name, value, milliseconds, step))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(_PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"MLflow did not answer within {_PATIENCE_SECONDS:g} s")

    def _send_all(self) -> None:
        try:
            from mlflow.tracking import MlflowClient  # noqa: PLC0415  # optional, and slow

            client = MlflowClient()
            run = os.environ.get("MLFLOW_RUN_ID")
            self._send(client, run or _own_run(client, self._fingerprint), is_ours=run is None)
        except Exception as error:  # noqa: BLE001  # it never costs a step
            self._log_loss(error)

    def _send(self, client: MlflowClient, run: str, *, is_ours: bool) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415  # optional

        last_steps: dict[str, int] = {}
        metrics: list[Metric] = []
        while (found := self._queue.get()) is not None:
            name, _, _, step = found
            if name not in last_steps:
                history = client.get_metric_history(run, name)
                last_steps[name] = max((metric.step for metric in history), default=0)
            if step > last_steps[name]:
                metrics.append(Metric(*found))
            if metrics and (self._queue.empty() or len(metrics) == _BATCH):
                client.log_batch(run, metrics=metrics)
                metrics = []
        if metrics:
            client.log_batch(run, metrics=metrics)
        if is_ours:
            client.set_terminated(run)


def _own_run(client: MlflowClient, fingerprint: str) -> str:
    """The run that an earlier start of the same training made, or a new one."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _DEFAULT_EXPERIMENT)
    experiment = client.get_experiment_by_name(name)
    experiment_id = (
        client.create_experiment(name) if experiment is None else experiment.experiment_id
    )
    found = client.search_runs(
        [experiment_id], f"tags.`{_FINGERPRINT_TAG}` = '{fingerprint}'", max_results=1
    )
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return found[0].info.run_id
    return client.create_run(experiment_id, tags={_FINGERPRINT_TAG: fingerprint}).info.run_id
