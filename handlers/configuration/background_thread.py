"""Work that no caller waits for, in one thread of the process."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger("landfall")

# A service that hangs must not fill the memory with what waits for it.
LIMIT_JOBS = 1_000


class BackgroundThread:
    """Runs jobs one after another; the thread starts with the first job.

    The process can end at any time, and its jobs with it: a job must be on record elsewhere, so
    that it is done later.
    """

    def __init__(self, limit_jobs: int = LIMIT_JOBS) -> None:
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue(limit_jobs)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> bool:
        """Run a job when those before it have ended. False, and nothing happens, at the limit."""
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
        """Return when every job that was submitted has ended."""
        self._jobs.join()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the edge of the thread
                # Without the text, which can quote what a service wrote.
                logger.warning("a background job failed: %s", type(error).__name__)
            finally:
                self._jobs.task_done()
