r"""Train an image classifier on one dataset version, alone or on many ranks, with the same result.

    python -m trainers.train --data DIR --manifest DIR_OR_FILE \
        --output-dir DIR --checkpoint-dir DIR --champion none --epochs 12

    python -m trainers.train --dataset synthetic --model resnet50 --image-size 224 ...
    python -m trainers.train --deterministic ...        # on GPUs: the same weights to the bit
    python -m trainers.train --model mine.trees:network --dataset mine.trees:dataset ...
    torchrun --standalone --nproc-per-node 2 -m trainers.train --parallel fsdp ...
    mpirun -np 2 python -m trainers.train ...

or ranks started by anyone who sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as Azure ML's
PyTorch distribution does. Each rank takes a GPU of its own (NCCL); where none sees a GPU, CPUs
(Gloo). The batch size is global, so the number of ranks changes the speed and nothing else.

Start the same command again after a crash: it goes on from the newest checkpoint, and ends in the
weights that an undisturbed run ends in. SIGTERM saves a checkpoint first.

Exit codes: 0; 65 the data is at fault (DataRejected, DataChanged); 124 no progress for too long;
143 stopped by SIGTERM; 1 any other failure. On failure error.json in the output folder tells
which; see docs/trainers.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import torch

from trainers import numerics
from trainers.combinations import check_options
from trainers.data.images import Dataset
from trainers.detection.dataset import DetectionDataset
from trainers.detection.network import ARCHITECTURES as DETECTORS
from trainers.detection.run import DetectionRun
from trainers.detection.scores import DetectionEvaluation
from trainers.errors import (
    EX_FAILURE,
    LaunchInvalid,
    PeerFailed,
    Stopped,
    TrainingError,
)
from trainers.evaluate import Evaluation
from trainers.files import check_writable
from trainers.loop import Run
from trainers.parallelism.deepspeed_config import deepspeed_config
from trainers.parallelism.launch import Launch
from trainers.parallelism.mesh import Place, place_of
from trainers.parallelism.watchdog import Watchdog
from trainers.parallelism.world import World, is_loss_of_peer
from trainers.plugins import is_dotted, load_dataset
from trainers.reports import provenance, results
from trainers.reports.memory import is_out_of_memory, out_of_memory
from trainers.reports.scaling import figures, measure
from trainers.reports.tracking import Tracking
from trainers.serving import pyfunc
from trainers.serving.model_folder import Model, load_model, save_model
from trainers.settings import Settings, parse_settings


def train(settings: Settings, world: World) -> None:
    """Read, train, evaluate, leave the results. The same on every rank; rank 0 speaks and writes.

    Raises:
        TrainingError: see `trainers.errors`.
    """
    say = _say if world.is_first else _silent
    dataset = world.together("data", lambda: _read(settings, world))
    say(
        f"dataset {dataset.version}: {len(dataset.train)} images to train on, "
        f"{len(dataset.held_out)} held out, {len(dataset.classes)} classes, "
        f"{len(dataset.quarantined)} quarantined; {world.size} ranks on {world.device.type}"
    )
    world.connect()
    kind = DetectionRun if isinstance(dataset, DetectionDataset) else Run
    scaling = measure(settings, dataset, world, kind) if settings.measure_scaling else None
    watchdog = Watchdog(
        limit_seconds=settings.longest_step_seconds,
        rank=world.rank,
        output=settings.output_dir,
        tell=lambda error: _tell(settings.output_dir, error),
    )
    run = kind(settings, dataset, world, say, watchdog.beat)
    run.resume()
    with _tracking(run):
        with watchdog:
            with StopRequest() as stop:
                run.fit(stop)
            if stop.requested:
                raise Stopped("stopped by SIGTERM after the last step, which is saved")
            evaluation = run.evaluate()
        model = run.trained()
        metrics = _metrics(run, evaluation)
        if settings.champion is not None:
            metrics |= run.score_champion(settings.champion)
        run.track(run.step, metrics)
    if model is not None:
        speed = figures(run.speed, settings, dataset, world.device, scaling)
        _leave(run, model, evaluation, metrics, speed)
    say(" ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    world.disconnect()


def _tracking(run: Run) -> AbstractContextManager[object]:
    """Rank 0's numbers go to whoever listens, as long as this is open."""
    if not run.world.is_first:
        return contextlib.nullcontext()
    tracking = Tracking.begin(
        run.settings.output_dir,
        fingerprint=run.identity.fingerprint(),
        resumed_from_step=run.resumed_from_step,
        curve=run.curve,
        say=run.say,
    )
    run.track = tracking.log
    return tracking


class StopRequest:
    """Whether SIGTERM has come, as a cancelled job or a launcher that shuts down sends it.

    To be asked for inside a `with` block. Before and after it SIGTERM ends the process at once, in
    whatever it does or waits for: there is nothing to save that is not saved.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _request(self, *_: object) -> None:
        self.requested = True


def _read(settings: Settings, world: World) -> Dataset:
    place = _check(settings, world)
    numerics.configure(settings, world.device)
    request = dataclasses.replace(
        settings.dataset_request, rank=place.data_rank, ranks=place.data_ranks
    )
    dataset = load_dataset(settings.dataset, request)
    is_detection, is_detector = isinstance(dataset, DetectionDataset), settings.model in DETECTORS
    if is_detection != is_detector and not is_dotted(settings.model):
        raise LaunchInvalid(
            f"--model {settings.model} does not learn from --dataset {settings.dataset}: annotated "
            f"images (coco) need a detector, labelled ones a classifier; {', '.join(DETECTORS)} "
            "are detectors"
        )
    return dataset


def _check(settings: Settings, world: World) -> Place:
    """What can be known to fail fails now, not after hours of reading and training.

    Raises:
        LaunchInvalid: options do not fit each other or the ranks, or a folder is not writable.
        ModelUnreadable: there is no model of ours in the champion's folder.
    """
    check_options(settings, world.size)
    place = place_of(settings, world)
    deepspeed_config(settings, world.size)
    check_writable(settings.output_dir, "--output-dir")
    check_writable(settings.checkpoint_dir, "--checkpoint-dir")
    if settings.champion is not None and world.is_first:
        load_model(settings.champion, torch.device("cpu"), settings.model)
    return place


def _metrics(run: Run, evaluation: Evaluation | DetectionEvaluation) -> dict[str, float]:
    """Flat numbers about this run. Speed is of the steps since the last start."""
    return {
        **evaluation.metrics(),
        "train_samples": len(run.dataset.train),
        "held_out_samples": len(run.dataset.held_out),
        "classes": len(run.dataset.classes),
        "quarantined_files": len(run.dataset.quarantined),
        "steps": run.step,
        "resumed_from_step": run.resumed_from_step,
        "train_seconds": run.speed.seconds,
        "images_per_second": run.speed.report()["images_per_second"],
    }


def _leave(
    run: Run,
    model: Model,
    evaluation: Evaluation | DetectionEvaluation,
    metrics: dict[str, float],
    speed: dict[str, Any],
) -> None:
    """Write the results; metrics.json last, as the sign that all are there."""
    detects = model.architecture in DETECTORS
    versions = provenance.versions(*(("torchvision",) if detects else ()))
    about: dict[str, Any] = {
        "metrics": metrics,
        "dataset_version": run.dataset.version,
        "code_version": provenance.code_version(),
        "seed": run.settings.seed,
        "versions": versions,
    }
    output = run.settings.output_dir
    if not is_dotted(model.architecture) and importlib.util.find_spec("mlflow") is not None:
        pyfunc.write_flavour(output / results.MODEL_NAME, versions, detects=detects)
    save_model(output / results.MODEL_NAME, model, about)
    results.write_report(output, run.dataset, evaluation, speed, run.curve)
    try:
        results.write_pictures(output, model.architecture, run.dataset, evaluation, run.curve)
    except Exception as error:  # noqa: BLE001  # a picture never costs a trained model
        run.say(f"warning: no pictures: {type(error).__name__}: {error}")
    results.write_metrics(output, metrics)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _silent(line: str) -> None:
    del line


def _fail(output: Path, error: Exception) -> int:
    """Tell a failure; returns the exit code."""
    if not isinstance(error, TrainingError):
        traceback.print_exception(error)
    if is_loss_of_peer(error):
        error = PeerFailed(
            "another rank died or did not answer in time: its own log has the cause; start again "
            "to go on from the last checkpoint"
        )
    _tell(output, error)
    return error.exit_code if isinstance(error, TrainingError) else EX_FAILURE


def _tell(output: Path, error: Exception) -> None:
    """On stderr and in error.json."""
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    try:
        results.write_error(output, error)
    except OSError:  # the exit code still tells
        traceback.print_exc()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit code."""
    settings = parse_settings(__doc__ or "", arguments)
    try:
        launch = Launch.from_environment(os.environ)
        if launch.rank == 0:
            results.clear_error(settings.output_dir)
        numerics.prepare_environment(settings, os.environ)
        world = World.join(
            launch,
            timeout_seconds=settings.peer_timeout_seconds,
            device_choice=settings.device,
        )
        try:
            train(settings, world)
        except Exception as error:
            if is_out_of_memory(error):
                raise out_of_memory(error, settings, world) from error
            kernel = numerics.refusing_kernel(error)
            if kernel is not None:
                raise numerics.not_repeatable(kernel, settings.model) from error
            raise
    except Exception as error:  # noqa: BLE001  # the edge of the process
        return _fail(settings.output_dir, error)
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a process group with a dead peer may block in its destructor.
    os._exit(exit_code)
