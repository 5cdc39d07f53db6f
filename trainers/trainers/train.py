"""Train on one dataset version, alone or on many ranks, with the same result.

    python -m trainers.train --data DIR --manifest DIR_OR_FILE --output-dir DIR --checkpoint-dir DIR

After a crash, start the same command again: it resumes from the newest checkpoint. Exit codes: 0;
65 the data is at fault; 124 no progress for too long; 143 stopped by SIGTERM; 1 any other failure.
error.json in the output folder names it. Launchers, options, guarantees: docs/trainers.md.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence

from trainers.errors import Stopped
from trainers.evaluate import evaluate_champion
from trainers.failures import report_failure
from trainers.inputs import read_inputs
from trainers.loop import Run, stop_requests
from trainers.outputs import metrics_of, write_outputs
from trainers.parallelism.devices import prepare_environment, record_collectives
from trainers.parallelism.launch import Launch
from trainers.parallelism.watchdog import Watchdog
from trainers.parallelism.world import World
from trainers.reports import error_file
from trainers.reports.tracking import tracking
from trainers.serving.onnx_file import check_exportable
from trainers.settings import Settings, parse_settings
from trainers.tracing import traced


def train(settings: Settings, world: World) -> None:
    """Read, train, evaluate and write the results. Every rank calls it; rank 0 logs and writes."""

    def log(line: str) -> None:
        if world.is_first:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()  # readers see it during the run

    dataset, initial = world.run_on_all_ranks("inputs", lambda: read_inputs(settings, world))
    log(f"dataset {dataset.summary()}; {world.size} ranks on {world.device.type}")
    if world.size > 1 and world.device.type == "cuda":
        log(record_collectives(settings.output_dir, os.environ))
    world.connect()
    watchdog = Watchdog(
        limit_seconds=settings.longest_step_seconds,
        rank=world.rank,
        output=settings.output_dir,
        report=functools.partial(error_file.write_failure, settings.output_dir),
        signs=world.signs_of_life(),
    )
    run = Run(settings, dataset, world, log, watchdog.heartbeat, initial)
    if settings.export is not None:
        check_exportable(run.model, inputs_are_images=run.task.inputs_are_images)
    run.resume()
    tracked = tracking(
        settings.output_dir,
        fingerprint=run.identity.fingerprint(),
        resumed_from_step=run.resumed_from_step,
        curve=run.curve,
        log=log,
    )
    with tracked if world.is_first else contextlib.nullcontext(run.track) as run.track:
        with watchdog:
            with stop_requests() as stop:
                run.fit(stop)
            if stop:
                raise Stopped("stopped by SIGTERM after the last step, which is saved")
            evaluation = run.conclude()
        model = run.trained()
        metrics = metrics_of(run, evaluation)
        champion = None
        if settings.champion is not None:
            champion = evaluate_champion(settings, dataset, world)
            metrics[f"champion_{champion.headline_name}"] = champion.headline
        run.track(run.step, metrics)
    if model is not None:
        write_outputs(run, model, evaluation, metrics, champion)
    log(" ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    world.disconnect()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; return the exit code."""
    settings = parse_settings(__doc__ or "", arguments)
    world: World | None = None
    try:
        launch = Launch.from_environment(os.environ)
        if launch.rank == 0:
            error_file.clear_error(settings.output_dir)
        prepare_environment(settings, os.environ)
        timeout = settings.peer_timeout_seconds
        world = World.join(launch, timeout_seconds=timeout, device_choice=settings.device)
        environment = os.environ if world.is_first else {}  # one span for all ranks
        with traced("train", environment, {"landfall.job.ranks": world.size}):
            train(settings, world)
    except Exception as error:  # noqa: BLE001  # the edge of the process
        return report_failure(error, settings, world)
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: the destructor of a process group with a dead peer may block.
    os._exit(exit_code)
