r"""Train an image classifier on one dataset version, alone or on many ranks, with the same result.

    python -m trainers.train --data DIR --manifest DIR_OR_FILE \
        --output-dir DIR --checkpoint-dir DIR --champion none --epochs 12

    torchrun --standalone --nproc-per-node 2 -m trainers.train ...
    mpirun -np 2 python -m trainers.train ...

or ranks started by anyone who sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as Azure ML's
PyTorch distribution does. GPUs (NCCL) are used where each rank of a machine has one, else the CPU
(Gloo). The batch size is global, so the number of ranks changes the speed and nothing else.

Start the same command again after a crash: it goes on from the newest checkpoint, and ends in the
weights that an undisturbed run ends in. SIGTERM saves a checkpoint first.

Exit codes: 0; 65 the data is at fault (DataRejected, DataChanged); 143 stopped by SIGTERM; 1 any
other failure. On failure error.json in the output folder tells which; see docs/trainers.md.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers import results
from trainers.checkpoints import CheckpointFolder, RunIdentity, load_state
from trainers.errors import (
    EX_FAILURE,
    LaunchInvalid,
    PeerFailed,
    Stopped,
    TrainingDiverged,
    TrainingError,
)
from trainers.evaluate import Evaluation, evaluate, evaluate_champion
from trainers.images import Dataset, to_input
from trainers.model_folder import new_model, save_model
from trainers.order import Order, shifted, shifts
from trainers.plugins import load_dataset
from trainers.schedule import learning_rate
from trainers.settings import Settings, parse_settings
from trainers.world import Launch, World, is_loss_of_peer

_PACKAGES = ("torch", "numpy", "pillow", "safetensors")


def train(settings: Settings, world: World) -> None:
    """Read, train, evaluate, leave the results. The same on every rank; rank 0 speaks and writes.

    Raises:
        TrainingError: see `trainers.errors`.
    """
    say = _say if world.is_first else _silent
    stop = StopRequest()
    if world.is_first:
        results.clear_error(settings.output_dir)
    dataset = world.together("data", lambda: _read(settings, world))
    say(
        f"dataset {dataset.version}: {len(dataset.train)} images to train on, "
        f"{len(dataset.held_out)} held out, {len(dataset.classes)} classes, "
        f"{len(dataset.quarantined)} quarantined; {world.size} ranks on {world.device.type}"
    )
    world.connect()
    run = Run(settings, dataset, world, say)
    run.resume()
    run.fit(stop)
    evaluation = evaluate(run.model, dataset.held_out, dataset.classes, world)
    if not math.isfinite(evaluation.loss):
        raise TrainingDiverged("the last step left weights that are not finite: lower the rate")
    metrics = run.metrics(evaluation)
    if settings.champion is not None:
        champion = evaluate_champion(
            settings.champion, dataset, settings.image_format, settings.model, world
        )
        metrics["champion_accuracy"] = champion.accuracy
    if world.is_first:
        _leave(settings, run, evaluation, metrics)
    say(" ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    world.disconnect()


class Run:
    """The state of training: model, optimizer and the number of steps done."""

    def __init__(
        self, settings: Settings, dataset: Dataset, world: World, say: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self.dataset = dataset
        self.world = world
        self.say = say
        self.order = Order(
            samples=len(dataset.train), batch_size=settings.batch_size, seed=settings.seed
        )
        self.steps = settings.epochs * self.order.steps_per_epoch
        torch.use_deterministic_algorithms(mode=True)
        torch.manual_seed(settings.seed)
        self.model = new_model(settings.model, dataset.classes, settings.image_format)
        self.model.network.to(world.device)
        self.optimizer = torch.optim.SGD(
            self.model.network.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
        )
        self.checkpoints = CheckpointFolder(
            settings.checkpoint_dir,
            RunIdentity(
                dataset_version=dataset.version,
                data_fingerprint=dataset.fingerprint,
                settings_fingerprint=settings.fingerprint(),
                seed=settings.seed,
            ),
            say,
        )
        self.step = 0
        self.resumed_from_step = 0
        self.train_seconds = 0.0

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one: found by rank 0, sent to all."""
        found = self.checkpoints.newest() if self.world.is_first else None
        payload = self.world.from_first(found.payload if found else None)
        if payload is None:
            return
        state = load_state(payload, self.world.device)
        self.model.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = self.resumed_from_step = int(state["step"])
        self.say(f"resumed from step {self.step}")

    def fit(self, stop: StopRequest) -> None:
        """Train to the last step, saving as it goes.

        Raises:
            Stopped: SIGTERM came to a rank; the state is saved.
            TrainingDiverged: the loss is not finite.
        """
        network = self.world.parallel(self.model.network)
        network.train()
        if self.world.size > 1:
            # DDP regroups the gradients after its first backward pass, and groups decide the order
            # in which ranks are added up. An unused pass first: then a resumed run rounds alike.
            self._forward(network).backward()
        started = logged = time.perf_counter()
        logged_step = self.step
        while self.step < self.steps:
            loss = self._forward(network)
            mean_loss, stopping = self._agree(loss, stop)
            if stopping:
                self._save()
                raise Stopped(f"stopped by SIGTERM after step {self.step}, which is saved")
            self._update(loss)
            self.step += 1
            now = time.perf_counter()
            self.train_seconds = now - started
            if self.step % self.settings.log_every == 0 or self.step == self.steps:
                rate = (self.step - logged_step) * self.settings.batch_size / (now - logged)
                self.say(f"step {self.step}/{self.steps} loss {mean_loss:.6f} images/s {rate:.0f}")
                logged, logged_step = now, self.step
            if self.step % self.settings.checkpoint_every == 0 or self.step == self.steps:
                self._save()

    def _forward(self, network: nn.Module) -> Tensor:
        """This rank's part of the batch's mean loss, times the ranks: DDP averages over them.

        So unequal parts weigh by their size, and the gradient is the global batch's.
        """
        batch = self.order.batch(self.step)
        offsets = shifts(
            batch,
            samples=self.order.samples,
            seed=self.settings.seed,
            pixels=self.settings.shift_pixels,
        )
        samples, offsets = self.world.share(batch.samples), self.world.share(offsets)
        images = self.dataset.train.take(samples)
        pixels = shifted(images.pixels, offsets)
        labels = images.labels.to(self.world.device)
        logits = network(to_input(pixels, self.world.device))
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        return loss * (self.world.size / self.settings.batch_size)

    def _agree(self, loss: Tensor, stop: StopRequest) -> tuple[float, bool]:
        """The batch's mean loss, and whether any rank was told to stop: on all ranks alike.

        One number more to add up for each step; in return no rank ever waits for one that left.
        """
        signals = torch.stack([loss.detach() / self.world.size, torch.zeros_like(loss)])
        signals[1] = float(stop.requested)
        mean_loss, stopping = self.world.sum(signals).tolist()
        if not stopping and not math.isfinite(mean_loss):
            raise TrainingDiverged(
                f"the loss is {mean_loss} at step {self.step + 1}: "
                f"lower --learning-rate (now {self.settings.learning_rate:g})"
            )
        return mean_loss, stopping > 0

    def _update(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(
                self.step, steps=self.steps, peak=self.settings.learning_rate
            )
        self.optimizer.step()

    def _save(self) -> None:
        """Rank 0 saves: after a step all hold the same. The schedule follows from the step."""
        if self.world.is_first:
            state = {
                "step": self.step,
                "model": self.model.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            }
            self.checkpoints.save(self.step, state)

    def metrics(self, evaluation: Evaluation) -> dict[str, float]:
        """Flat numbers about this run. Speed is of the steps since the last start."""
        trained = (self.step - self.resumed_from_step) * self.settings.batch_size
        return {
            "accuracy": evaluation.accuracy,
            "loss": evaluation.loss,
            "train_samples": len(self.dataset.train),
            "held_out_samples": len(self.dataset.held_out),
            "classes": len(self.dataset.classes),
            "quarantined_files": len(self.dataset.quarantined),
            "steps": self.step,
            "resumed_from_step": self.resumed_from_step,
            "train_seconds": self.train_seconds,
            "images_per_second": trained / self.train_seconds if self.train_seconds else 0.0,
        }


class StopRequest:
    """Whether SIGTERM has come, as a cancelled job or a launcher that shuts down sends it."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._request)

    def _request(self, *_: object) -> None:
        self.requested = True


def _read(settings: Settings, world: World) -> Dataset:
    if settings.batch_size < world.size:
        raise LaunchInvalid(
            f"--batch-size {settings.batch_size} is less than one image for each of "
            f"{world.size} ranks: it is the global batch"
        )
    return load_dataset(settings.dataset, settings.dataset_request)


def _leave(settings: Settings, run: Run, evaluation: Evaluation, metrics: dict[str, float]) -> None:
    """Write the results; metrics.json last, as the sign that all are there."""
    about: dict[str, Any] = {
        "metrics": metrics,
        "dataset_version": run.dataset.version,
        "seed": settings.seed,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
    }
    save_model(settings.output_dir / results.MODEL_NAME, run.model, about)
    results.write_report(settings.output_dir, run.dataset, evaluation)
    results.write_metrics(settings.output_dir, metrics)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _silent(line: str) -> None:
    del line


def _fail(output: Path, error: Exception) -> int:
    """Tell a failure on stderr and in error.json; returns the exit code."""
    if not isinstance(error, TrainingError):
        traceback.print_exception(error)
    if is_loss_of_peer(error):
        error = PeerFailed(
            "another rank died or did not answer in time: its own log has the cause; start again "
            "to go on from the last checkpoint"
        )
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    try:
        results.write_error(output, error)
    except OSError:  # the exit code still tells
        traceback.print_exc()
    return error.exit_code if isinstance(error, TrainingError) else EX_FAILURE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit code."""
    settings = parse_settings(__doc__ or "", arguments)
    try:
        launch = Launch.from_environment(os.environ)
        train(settings, World.join(launch, timeout_seconds=settings.peer_timeout_seconds))
    except Exception as error:  # noqa: BLE001  # the edge of the process
        return _fail(settings.output_dir, error)
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a process group with a dead peer may block in its destructor.
    os._exit(exit_code)
