"""error.json, which tells the program that started the run about a failure.

Its keys: type, message, files (each with path and reason), files_total.
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
    """Remove the error files of an earlier start: a requeued job has the same output folder."""
    for path in (output / ERROR_NAME, *output.glob("stacks-rank-*"), *output.glob("collectives-*")):
        path.unlink(missing_ok=True)


def write_failure(output: Path | None, error: Exception) -> int:
    """Write one line to stderr, and error.json if `output` is given; return the exit code.

    An existing error.json is kept: the first rank's failure is the cause of the others'.
    """
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    typed = error if isinstance(error, TrainingError) else None
    description = {
        "type": type(error).__name__,
        "message": str(error),
        "files": [dataclasses.asdict(problem) for problem in typed.problems] if typed else [],
        "files_total": typed.total_problems if typed else 0,
    }
    try:
        if output is not None and not (output / ERROR_NAME).exists():
            write_json_atomically(output / ERROR_NAME, description)
    except OSError:  # the exit code still reports the failure
        traceback.print_exc()
    return typed.exit_code if typed else EX_FAILURE
