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
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from trainers.reports.learning_curve import LearningCurve

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


class _Listener(Protocol):
    def log(self, step: int, numbers: Numbers) -> None: ...
    def close(self) -> None: ...


class Tracking:
    """Hands every number to all listeners, on rank 0.

    Args:
        listeners: get every number, until they fail.
        log: gets a line about each one that fails.
    """

    def __init__(self, listeners: Iterable[_Listener], log: Callable[[str], None]) -> None:
        self._listeners = list(listeners)
        self._log = log

    @classmethod
    def begin(
        cls,
        output: Path,
        *,
        fingerprint: str,
        resumed_from_step: int,
        curve: LearningCurve,
        log: Callable[[str], None],
    ) -> Self:
        """Find the listeners, and give them what they lack of the curve so far.

        Args:
            output: the run's output folder.
            fingerprint: of the training: the same for each start of a run.
            resumed_from_step: the steps done before this start.
            curve: of the steps done before this start.
            log: gets a line about each listener that fails.
        """
        tracking = cls((), log)

        def listen(make: Callable[[], _Listener]) -> None:
            try:
                listener = make()
                for step, numbers in _points(curve):
                    listener.log(step, numbers)
                tracking._listeners.append(listener)
            except Exception as error:  # noqa: BLE001  # see above: it never costs a step
                tracking._log_loss(error)

        folder = output / FOLDER_NAME
        if importlib.util.find_spec("tensorboard") is not None:
            listen(lambda: _TensorBoard(folder, resumed_from_step))
        if "MLFLOW_TRACKING_URI" in os.environ:
            if importlib.util.find_spec("mlflow") is None:
                log("MLFLOW_TRACKING_URI is set, but mlflow is not installed: nothing is logged")
            else:
                listen(lambda: _MLflow(fingerprint, tracking._log_loss))
        return tracking

    def log(self, step: int, numbers: Numbers) -> None:
        """Hand on the numbers of after `step` steps."""
        for listener in list(self._listeners):
            try:
                listener.log(step, numbers)
            except Exception as error:  # noqa: BLE001  # see above: it never costs a step
                self._listeners.remove(listener)
                self._log_loss(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for listener in self._listeners:
            try:
                listener.close()
            except Exception as failure:  # noqa: BLE001  # see above: it never costs a step
                self._log_loss(failure)

    def _log_loss(self, error: Exception) -> None:
        reason = str(error).splitlines()[0] if str(error) else ""
        self._log(f"warning: metrics are not tracked any more: {type(error).__name__}: {reason}")


def tracked(run: Run) -> AbstractContextManager[object]:
    """While this is open, the numbers of rank 0 of a run go to its listeners."""
    if not run.world.is_first:
        return contextlib.nullcontext()
    tracking = Tracking.begin(
        run.settings.output_dir,
        fingerprint=run.identity.fingerprint(),
        resumed_from_step=run.resumed_from_step,
        curve=run.curve,
        log=run.log,
    )
    run.track = tracking.log
    return tracking


def _points(curve: LearningCurve) -> Iterable[tuple[int, Numbers]]:
    for point in curve.train:
        yield point.step, point.numbers()
    for point in curve.held_out:
        yield point.step, point.numbers()


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
            self._queue.put((name, value, step, milliseconds))

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
            is_ours = run is None
            run = run or _own_run(client, self._fingerprint)
            self._send(client, run)
            if is_ours:
                client.set_terminated(run)
        except Exception as error:  # noqa: BLE001  # see above: it never costs a step
            self._log_loss(error)

    def _send(self, client: MlflowClient, run: str) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415  # optional

        last_steps: dict[str, int] = {}
        is_open = True
        while is_open:
            waiting = [self._queue.get()]
            while len(waiting) < _BATCH and not self._queue.empty():
                waiting.append(self._queue.get())
            is_open = None not in waiting
            metrics: list[Metric] = []
            for name, value, step, milliseconds in filter(None, waiting):
                if name not in last_steps:
                    last_steps[name] = _last_step(client, run, name)
                if step > last_steps[name]:
                    metrics.append(Metric(name, value, milliseconds, step))
            if metrics:
                client.log_batch(run, metrics=metrics)


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


def _last_step(client: MlflowClient, run: str, name: str) -> int:
    """The last step that the run has of a metric; 0 if it has none."""
    return max((metric.step for metric in client.get_metric_history(run, name)), default=0)
