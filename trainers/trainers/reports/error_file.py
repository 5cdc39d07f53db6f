"""error.json, by which a failure reaches the program that started the run.

Its keys: type, message, files (path and reason of each), files_total.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from pathlib import Path

from trainers.errors import EX_FAILURE, TrainingError
from trainers.files import write_json_atomically

ERROR_NAME = "error.json"


def clear_error(output: Path) -> None:
    """Remove the error of an earlier start: a requeued job has the same output folder."""
    if not output.is_dir():
        return
    (output / ERROR_NAME).unlink(missing_ok=True)
    for stacks in output.glob("stacks-rank-*.txt"):
        stacks.unlink(missing_ok=True)


def write_failure(output: Path | None, error: Exception) -> int:
    """Write one line to stderr, and error.json if no other rank has; returns the exit code."""
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    try:
        if output is not None:
            write_error(output, error)
    except OSError:  # the exit code still reports the failure
        traceback.print_exc()
    return error.exit_code if isinstance(error, TrainingError) else EX_FAILURE


def write_error(output: Path, error: Exception) -> None:
    """Write error.json unless it exists: the first rank's failure causes those of the others."""
    path = output / ERROR_NAME
    if path.exists():
        return
    problems = error.problems if isinstance(error, TrainingError) else ()
    total = error.total_problems if isinstance(error, TrainingError) else 0
    write_json_atomically(
        path,
        {
            "type": type(error).__name__,
            "message": str(error),
            "files": [dataclasses.asdict(problem) for problem in problems],
            "files_total": total,
        },
    )
