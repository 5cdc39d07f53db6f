"""The training loop, from the newest checkpoint to the last step."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.checkpointing.checkpoints import CheckpointFolder, RunIdentity
from trainers.checkpointing.saver import Saver
from trainers.checkpointing.sharded_state import fingerprint, local
from trainers.data.batches import Batches
from trainers.data.dataset import Dataset
from trainers.data.images import RandomCrop, Samples
from trainers.data.order import Order, stream_seed
from trainers.errors import Stopped, TrainingDiverged
from trainers.evaluate import evaluate
from trainers.inputs import task_of
from trainers.optimizers import build_optimizer, learning_rate
from trainers.parallelism.local_steps import average_over_ranks
from trainers.parallelism.parallel import Parallel
from trainers.parallelism.step_synchronisation import StepStatus, StepSynchronisation
from trainers.parallelism.world import World
from trainers.plugins import Augmentation, make
from trainers.reports.speed import Speed
from trainers.reports.tracking import LearningCurve, Track, held_out_numbers, train_numbers
from trainers.serving.model_folder import Model, new_model
from trainers.settings import Settings
from trainers.tasks.task import Evaluation
from trainers.warm_start import InitialModel
from trainers.weight_copies import WeightCopies


@contextlib.contextmanager
def stop_requests() -> Generator[list[int]]:
    """Collect SIGTERMs inside the block, for example of a canceled job or a launcher's shutdown.

    Outside the block SIGTERM ends the process at once: there is no unsaved state.
    """
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


class Run:
    """The state of training: model, optimizer, and the number of completed steps."""

    def __init__(
        self,
        settings: Settings,
        dataset: Dataset,
        world: World,
        log: Callable[[str], None],
        heartbeat: Callable[[str, float | None], object] = lambda _, __: None,
        initial_model: InitialModel | None = None,
    ) -> None:
        self.settings = settings
        self.dataset = dataset
        self.task = task_of(dataset)
        self.world = world
        self.log = log
        self.heartbeat = heartbeat  # see `trainers.parallelism.watchdog.Watchdog`
        self.initial_model = initial_model
        self.order = Order(
            samples=len(dataset.train),
            batch_size=settings.batch_size,
            seed=settings.seed,
            shuffle_window=settings.shuffle_window,
            repeats=settings.repeat_samples or 1,
        )
        self.steps = settings.epochs * self.order.steps_per_epoch
        evaluated_epochs = settings.evaluate_every or settings.epochs
        self._evaluate_every = evaluated_epochs * self.order.steps_per_epoch
        torch.manual_seed(settings.seed)
        self.model = new_model(settings.model, dataset.classes, settings.image_format)
        self.task.check(self.model)
        self.augment: Augmentation | None = None
        if settings.augment is not None:
            kind: Any = Callable
            self.augment = make(settings.augment, kind, num_classes=len(dataset.classes))
        if initial_model is not None:
            log(initial_model.copy_weights(self.model.network))
        network_fingerprint = fingerprint(self.model.network)  # before it is spread over ranks
        self.parallel = Parallel(self.model.network, self._loss, settings, world)
        of_images = self.task.inputs_are_images
        self.batches = Batches(
            dataset.train,
            self.order,
            self.parallel.coordinates.share,
            steps=self.steps,
            crop=RandomCrop(size=settings.image_size, least_area=settings.crop_area)
            if of_images and settings.shift_pixels is None
            else None,
            shift_pixels=(settings.shift_pixels or 0) if of_images else 0,
            device=world.device,
            # Other labels are numbers of samples, which the host needs.
            moves_labels=self.task.labels_are_classes,
        )
        has_fused = self.parallel.is_whole or (
            settings.optimizer == "adamw" and not self.parallel.has_mixed_tensors
        )
        self.optimizer = build_optimizer(
            settings,
            self.parallel.network.parameters(),
            # torch's multi-tensor kernels cannot mix plain tensors and DTensors.
            foreach=False if self.parallel.has_mixed_tensors else None,
            # A fused update is one kernel for all parameters. DTensors have one for AdamW only.
            fused=True if world.device.type == "cuda" and has_fused else None,
        )
        self.copies = WeightCopies(
            self.parallel.network,
            decay=settings.average_weights,
            keep_best=settings.keep_best,
            let_go=self.parallel.reshard,
        )
        self.identity = RunIdentity(
            dataset_version=dataset.version,
            data_fingerprint=dataset.fingerprint,
            settings_fingerprint=settings.fingerprint(),
            network_fingerprint=network_fingerprint,
            seed=settings.seed,
            initial_weights="" if initial_model is None else initial_model.weights_sha256,
        )
        self.saver = Saver(
            CheckpointFolder(settings.checkpoint_dir, self.identity, log),
            world,
            timeout_seconds=settings.checkpoint_timeout_seconds,
        )
        self.synchronisation = StepSynchronisation(world)
        compiles = settings.compile is not None
        self._first_limit_seconds = settings.compile_timeout_seconds if compiles else None
        self.step = 0
        self.resumed_from_step = 0
        self.saved_step = 0
        self.kept_step = 0
        """The number of steps after which the network had the model's weights."""
        self.speed = Speed(devices=world.size, device_type=world.device.type)
        self.curve = LearningCurve()
        self.track: Track = lambda step, numbers: None  # noqa: ARG005  # its parameters
        """Is called with the number of completed steps and metrics by name, during the run."""

    def resume(self) -> None:
        """Load the newest checkpoint, if there is one."""
        step, notes = self.saver.resume(
            self.parallel.network, self.optimizer, self.copies.tensors()
        )
        if not step:
            return
        self.step = self.resumed_from_step = self.saved_step = step
        if notes:
            self.curve = LearningCurve.from_bytes(notes)
        self.log(f"resumed from step {step}")

    def fit(self, stop: Sequence[int]) -> None:
        """Train to the last step and save checkpoints; `stop` comes from `stop_requests`.

        Raises:
            Stopped: a rank received SIGTERM; the state is saved.
            TrainingDiverged: the loss is not finite.
        """
        self.parallel.module.train()
        self.heartbeat("the start of training", self._first_limit_seconds)
        self.parallel.prepare_exchange(lambda: self._pass(self._passes()[0], last=True))
        if self._evaluation_is_due():  # SIGTERM came in that step
            self.evaluate()
        self.speed.start()
        while self.step < self.steps and not self._gives_up():
            status = self._step(stop)
            self.heartbeat(f"step {self.step}", None)
            self.speed.count(self.settings.batch_size)
            if status is not None:
                self._after_step(status)
        self._finish_saving()

    def _step(self, stop: Sequence[int]) -> StepStatus | None:
        """Do one step; return the status over all ranks, if they synchronize in it."""
        loss = self._batch_loss()
        wait_for_status = None
        if self.synchronisation.is_due(self.step + 1) or self._has_consequences(self.step + 1):
            loss = loss / self.parallel.coordinates.ranks_with_loss
            wait_for_status = self.synchronisation.begin(self.step + 1, loss, stop=bool(stop))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step, self.order.steps_per_epoch)
        if self.settings.clip_gradients is not None:
            self.parallel.clip_gradients(self.settings.clip_gradients)
        self.optimizer.step()
        self.step += 1
        if self._ranks_meet():
            average_over_ranks(self.optimizer)
        self.copies.update(self.step)
        return None if wait_for_status is None else wait_for_status()

    def _has_consequences(self, step: int) -> bool:
        """Whether the step needs a synchronization for a log line, checkpoint or evaluation."""
        return step % self.settings.log_every == 0 or self._is_kept(step)

    def _is_kept(self, step: int) -> bool:
        """Whether the weights after this step are saved or evaluated."""
        intervals = self.settings.checkpoint_every, self._evaluate_every
        return step == self.steps or any(step % every == 0 for every in intervals)

    def _ranks_meet(self) -> bool:
        """Whether the ranks of --average-every average after this step."""
        every = self.settings.average_every
        return every is not None and (self.step % every == 0 or self._is_kept(self.step))

    def _after_step(self, status: StepStatus) -> None:
        """Log, stop, evaluate and save, if due.

        Raises:
            Stopped: a rank received SIGTERM; the state is saved.
            TrainingDiverged: the loss is not finite.
        """
        settings, step = self.settings, self.step
        self._check_finite("the loss", status.mean_loss)
        if step % settings.log_every == 0 or step == self.steps:
            rate = self.optimizer.param_groups[0]["lr"]
            point = {"step": step, "loss": status.mean_loss, "learning_rate": rate}
            self.curve.train.append(point)
            speed = self.speed.images_per_second_since_asked()
            self.log(f"step {step}/{self.steps} loss {status.mean_loss:.6f} images/s {speed:.0f}")
            self.track(step, {**train_numbers(point), "images_per_second": speed})
        if status.is_stopping:
            self._save()
            self._finish_saving()
            raise Stopped(f"stopped by SIGTERM after step {step}, which is saved")
        if self._evaluation_is_due():
            self.evaluate()
        if step % settings.checkpoint_every == 0 or step == self.steps or self._gives_up():
            self._save()

    def _evaluation_is_due(self) -> bool:
        """Whether the curve lacks an evaluation after this step. `conclude` does the last one."""
        is_there = self.step in {point["step"] for point in self.curve.held_out[-1:]}
        is_between = 0 < self.step < self.steps
        return is_between and self.step % self._evaluate_every == 0 and not is_there

    def _gives_up(self) -> bool:
        """Whether too many evaluations were no better than the best one. All ranks agree."""
        patience = self.settings.early_stop_evaluations
        return patience is not None and self.curve.evaluations_since_best() >= patience

    def conclude(self) -> Evaluation:
        """Score the trained network. With --keep-best, first go back to the best evaluation."""
        evaluation = self.evaluate()
        self.kept_step = self.step
        if self.settings.keep_best:
            self.kept_step = int(self.curve.best()["step"])
        if self.kept_step != self.step:
            self.log(f"the best evaluation was after step {self.kept_step}: its weights are kept")
            self.copies.restore()
            evaluation = self._scored()
        return evaluation

    def evaluate(self) -> Evaluation:
        """Score the network for the learning curve; keep its weights, if they are the best."""
        evaluation = self._scored()
        points = self.curve.held_out
        if points and points[-1]["step"] == self.step:  # training ended early at this evaluation
            return evaluation
        point = {"step": self.step, "loss": evaluation.loss, "accuracy": evaluation.headline}
        points.append(point)
        self.track(self.step, held_out_numbers(point))
        if self.curve.best() is point:
            with self.copies.averaged():
                self.copies.keep()
        return evaluation

    def _scored(self) -> Evaluation:
        """Score the network on the held-out images, distributed over the ranks as in training."""
        self.heartbeat("the start of an evaluation", self._first_limit_seconds)
        self.parallel.unify_buffers()
        self.parallel.module.eval()
        with self.speed.paused(), self.copies.averaged():
            evaluation = evaluate(
                dataclasses.replace(self.model, network=self.parallel.evaluated),
                self.dataset,
                self.world,
                coordinates=self.parallel.coordinates,
                progress=lambda: self.heartbeat(
                    f"a pass of evaluation after step {self.step}", None
                ),
            )
        self.parallel.module.train()
        self._check_finite("the loss on held-out images", evaluation.loss)
        return evaluation

    def trained(self) -> Model | None:
        """Return the whole model in the CPU's memory on rank 0; None on other ranks."""
        with self.copies.averaged():
            state = self.parallel.whole_state()
        if not self.world.is_first:
            return None
        whole = new_model(self.settings.model, self.dataset.classes, self.settings.image_format)
        whole.network.load_state_dict(state)
        return whole

    def _batch_loss(self) -> Tensor:
        """Do the step's forward and backward passes; return this rank's part of the mean loss."""
        # Of the network, as for dropout: a resumed run repeats the draws.
        stream = self.parallel.coordinates.random_stream
        torch.manual_seed(stream_seed(self.settings.seed, self.step, stream))
        self.optimizer.zero_grad()
        loss = torch.zeros((), device=self.world.device)
        with self.speed.waiting_for_data():
            passes = self._passes()
        for number, samples in enumerate(passes, start=1):
            loss += self._pass(samples, last=number == len(passes))
        return loss

    def _passes(self) -> list[Samples]:
        """Return this rank's share of the step's batch, split into passes."""
        share, count = self.batches.take(self.step), self.settings.accumulate
        return [
            Samples(inputs=share.inputs[number::count], labels=share.labels[number::count])
            for number in range(count)
        ]

    def _pass(self, samples: Samples, *, last: bool) -> Tensor:
        """Do one forward and backward pass; return the loss as `_loss` defines it."""
        arguments, targets = self.task.prepare(samples, self.world.device)
        if self.augment is not None:
            inputs, targets = self.augment(arguments[0], targets)
            arguments = (inputs,)
        return self.parallel.forward_backward(arguments, targets, last=last)

    def _loss(self, output: Any, targets: Any) -> Tensor:
        """Return the samples' part of the batch's mean loss, times the number of data ranks.

        Gradients are averaged over the data ranks. The factor makes unequal shares weigh by their
        size, so that the average is the gradient of the global batch.
        """
        loss = self.task.loss(output, targets, label_smoothing=self.settings.label_smoothing)
        return loss * (self.parallel.coordinates.data_ranks / self.settings.batch_size)

    def _save(self) -> None:
        if self.step == self.saved_step:
            return  # never overwrite a committed checkpoint; nothing to save at step 0
        if self.settings.average_every is not None and not self._ranks_meet():  # after SIGTERM
            average_over_ranks(self.optimizer)
        self.parallel.reshard()  # an evaluation leaves parameters gathered
        # A step's gradients may be infinite although its loss is finite.
        weights = [local(each.detach()) for each in self.parallel.network.parameters()]
        norms = self.world.sum(torch.nn.utils.get_total_norm(weights))  # all ranks decide alike
        self._check_finite("the norm of all weights", norms.item())
        self.parallel.unify_buffers()
        self.curve.add_speed(self.speed.report())
        notes = self.curve.to_bytes() if self.world.is_first else b""
        self._finish_saving()
        copies = self.copies.tensors()
        self.saver.start(self.step, self.parallel.network, self.optimizer, notes, copies)
        self.saved_step = self.step

    def _finish_saving(self) -> None:
        """Wait for the checkpoint that is being written. Storage may be slower than steps."""
        waiting = self.settings.checkpoint_timeout_seconds
        self.heartbeat(f"step {self.step}", waiting)
        self.saver.finish()
        self.heartbeat(f"the checkpoint of step {self.saved_step}", None)

    def _check_finite(self, what: str, number: float) -> None:
        if not math.isfinite(number):
            raise TrainingDiverged(
                f"{what} is {number} at step {self.step}: lower --learning-rate (its peak is "
                f"{self.settings.peak_learning_rate:g})"
            )
