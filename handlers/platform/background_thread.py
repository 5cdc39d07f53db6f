"""Background work in one thread of the process."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger("landfall")

# Bounds the memory of waiting jobs while a service hangs.
LIMIT_JOBS = 1_000


class BackgroundThread:
    """Runs jobs one after another; the thread starts with the first job.

    The process can end at any time and lose its jobs, so a job must be recorded elsewhere, to be
    done later.
    """

    def __init__(self, limit_jobs: int = LIMIT_JOBS) -> None:
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue(limit_jobs)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a job. Return False, without queueing it, if the queue is full."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="background", daemon=True)
                self._thread.start()
        return True

    def wait_until_idle(self) -> None:
        """Wait until every submitted job has ended."""
        self._jobs.join()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the edge of the thread
                # Without the error's text, which can quote a service's response.
                logger.warning("a background job failed: %s", type(error).__name__)
            finally:
                self._jobs.task_done()
