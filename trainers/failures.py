"""From any exception to a typed failure, to error.json and to an exit code."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from trainers.errors import EX_FAILURE, PeerFailed, TrainingError
from trainers.numerics import not_repeatable, refusing_kernel
from trainers.parallelism.world import World, is_loss_of_peer
from trainers.reports import results
from trainers.reports.memory import is_out_of_memory, out_of_memory
from trainers.settings import Settings


def report_failure(error: Exception, settings: Settings, world: World | None) -> int:
    """Write a failure to stderr and to error.json.

    Args:
        error: raised by a run.
        settings: of the run.
        world: the ranks; None if they did not find each other.

    Returns:
        The exit code of the process.
    """
    if not isinstance(error, TrainingError):
        traceback.print_exception(error)
    typed = typed_failure(error, settings, world)
    write_failure(settings.output_dir, typed)
    return typed.exit_code if isinstance(typed, TrainingError) else EX_FAILURE


def typed_failure(error: Exception, settings: Settings, world: World | None) -> Exception:
    """The typed failure that an exception of torch stands for; `error` itself if there is none.

    Arguments are those of `report_failure`. The message names the options to change.
    """
    if isinstance(error, TrainingError):
        return error
    if world is not None and is_out_of_memory(error):
        return out_of_memory(error, settings, world)
    kernel = refusing_kernel(error)
    if kernel is not None:
        return not_repeatable(kernel, settings.model)
    if is_loss_of_peer(error):
        return PeerFailed(
            "another rank died or did not answer in time: its own log has the cause. Start again "
            "to go on from the last checkpoint"
        )
    return error


def write_failure(output: Path, error: Exception) -> None:
    """Write one line to stderr, and error.json if no other rank has."""
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    try:
        results.write_error(output, error)
    except OSError:  # the exit code still reports the failure
        traceback.print_exc()
