"""A watchdog: it ends a rank that makes no progress, and writes the stacks of its threads.

Ranks wait for each other in every step, so that all ranks hang if one does. Each rank's watchdog
writes the stacks of its own rank; the rank that does not wait for others is the cause. A rank whose
process is gone or stopped writes none: it gives no sign of life in the store, and the others name
it. So a lost peer is told from a hang on NCCL, too, where a collective with a dead rank waits.

A hang in native code may hold Python's interpreter lock, which also stops the watchdog's thread.
So the watchdog restarts faulthandler's timer at each check: the timer needs no lock, prints the
stacks on stderr and ends the process with 1 (docs.python.org, faulthandler.dump_traceback_later).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from trainers.errors import PeerFailed, TrainingError, TrainingHung
from trainers.parallelism.world import SignsOfLife

_STDERR = 2
# Launchers end all ranks when the first one ends. Until then, the others can write their stacks.
_GRACE_SECONDS = 1.0
_CHECKS = 10  # checks of the clock within the limit; at least one per second


class Watchdog:
    """Watches this rank inside a `with` block.

    If more than `limit_seconds` pass between two heartbeats, it writes `stacks-rank-<rank>.txt` to
    the output folder, calls `report` with the error, and ends the process. The error is PeerFailed
    if another rank's process gives no sign of life, else TrainingHung.
    """

    def __init__(
        self,
        *,
        limit_seconds: float,
        rank: int,
        output: Path,
        report: Callable[[TrainingError], object],
        signs: SignsOfLife | None = None,
    ) -> None:
        self._limit_seconds = limit_seconds
        self._check_seconds = min(1.0, limit_seconds / _CHECKS)
        self._rank = rank
        self._path = output / f"stacks-rank-{rank}.txt"
        self._report = report
        self._signs = signs
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def heartbeat(self, done: str, limit_seconds: float | None = None) -> None:
        """Record progress.

        Args:
            done: names the last completed piece of work.
            limit_seconds: of the next piece, if it may take longer than a step.
        """
        self._last = (time.monotonic(), done, limit_seconds or self._limit_seconds)

    def __enter__(self) -> Self:
        self.heartbeat("the start")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # An error after the limit may only be the consequence of another rank's end. Joining the
        # thread lets the watchdog report the hang and end the process instead.
        self._stopped.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            since, done, limit = self._last
            native_limit = limit + 2 * self._check_seconds + _GRACE_SECONDS
            faulthandler.dump_traceback_later(native_limit, exit=True, file=_STDERR)
            if time.monotonic() - since > limit:
                faulthandler.cancel_dump_traceback_later()
                self._give_up(done, limit)
            self._stopped.wait(self._check_seconds)

    def _give_up(self, done: str, limit: float) -> None:
        headline = f"rank {self._rank} has made no progress for {limit:g} s since {done}"
        with contextlib.ExitStack() as opened:
            streams = [sys.stderr]
            with contextlib.suppress(OSError):
                streams.append(opened.enter_context(self._path.open("w")))
            for stream in streams:
                with contextlib.suppress(OSError):
                    stream.write(f"{headline}; the stacks of its threads:\n")
                    stream.flush()
                    faulthandler.dump_traceback(file=stream, all_threads=True)
        lost = [] if self._signs is None else self._signs.missing()
        error: TrainingError = TrainingHung(
            f"{headline} (--step-timeout-seconds): each rank's stacks are in {self._path.parent}/"
            "stacks-rank-<rank>.txt and on its stderr; the rank that is not waiting for others is "
            "the cause. Start again to go on from the last checkpoint"
        )
        if lost:
            names = " and ".join(f"rank {rank}" for rank in lost)
            error = PeerFailed(
                f"{headline}, and {names} gave no sign of life: its process has ended, is "
                "stopped, or is kept by native code; its own log has the cause. Start again to "
                "go on from the last checkpoint"
            )
        self._report(error)
        sys.stderr.flush()
        time.sleep(_GRACE_SECONDS)
        os._exit(error.exit_code)
