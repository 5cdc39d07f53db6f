"""From any exception to a typed failure, to error.json and to an exit code."""

from __future__ import annotations

import traceback

from trainers.errors import PeerFailed, TrainingError
from trainers.numerics import not_repeatable
from trainers.parallelism.world import World, is_loss_of_peer
from trainers.reports.error_file import write_failure
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
    return write_failure(settings.output_dir, typed_failure(error, settings, world))


def typed_failure(error: Exception, settings: Settings, world: World | None) -> Exception:
    """The typed failure that an exception of torch stands for; `error` itself if there is none.

    Arguments are those of `report_failure`. The message names the options to change.
    """
    if isinstance(error, TrainingError):
        return error
    if world is not None and is_out_of_memory(error):
        return out_of_memory(error, settings, world)
    refusal = not_repeatable(error, settings.model)
    if refusal is not None:
        return refusal
    if is_loss_of_peer(error):
        return PeerFailed(
            "another rank died or did not answer in time: its own log has the cause. Start again "
            "to go on from the last checkpoint"
        )
    return error
