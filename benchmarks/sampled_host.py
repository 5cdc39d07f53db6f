"""`python -m benchmarks.sampled_host APP --port PORT --state STATE`: the host, under a sampler.

It runs as `python -m localazure start` does. Each SIGUSR1 starts sampling the event loop's thread,
or ends it and writes `<state>/profile.json`. Sampling stops the threads that it looks at for some
microseconds every millisecond; cProfile would make calls of small functions many times dearer and
so shift the picture towards them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import psutil

from benchmarks.profile_shares import classify
from localazure.functions.service import start_host

INTERVAL_SECONDS = 0.001
# A short interval, so that the sampler gets the interpreter's lock soon.
SWITCH_INTERVAL_SECONDS = 0.0002


class Sampler:
    """Samples the stack of a thread, and counts owners.

    Args:
        thread: ident of the thread.
        result: file that the counts are written to.
    """

    def __init__(self, thread: int, result: Path) -> None:
        self._thread = thread
        self._result = result
        self._counts = Counter[str]()
        self._stopped: threading.Event | None = None
        self._began = 0.0
        self._cpu_before: dict[int, float] = {}

    def toggle(self, *_: object) -> None:
        """Start, or stop and write."""
        if self._stopped is not None:
            self._stopped.set()
            self._stopped = None
            return
        self._stopped = threading.Event()
        self._counts.clear()
        self._cpu_before = _cpu_by_thread()
        self._began = time.monotonic()
        threading.Thread(target=self._sample, args=(self._stopped,), name="sampler").start()

    def _sample(self, stopped: threading.Event) -> None:
        myself = threading.get_native_id()
        while not stopped.wait(INTERVAL_SECONDS):
            frame = sys._current_frames()[self._thread]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the documented way
            codes = (each.f_code for each, _ in traceback.walk_stack(frame))
            self._counts[classify((code.co_filename, code.co_name) for code in codes)] += 1
        used = {
            thread: seconds - self._cpu_before.get(thread, 0.0)
            for thread, seconds in _cpu_by_thread().items()
            if thread != myself
        }
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        cpu = Counter[str]()
        for thread, seconds in used.items():
            cpu[names.get(thread, "other").rsplit("-", 1)[0]] += round(seconds * 1000)
        document = {
            "seconds": time.monotonic() - self._began,
            "samples": dict(self._counts),
            "cpu_ms_by_thread": dict(cpu),
        }
        scratch = self._result.with_suffix(".tmp")
        scratch.write_text(json.dumps(document))
        scratch.replace(self._result)


def _cpu_by_thread() -> dict[int, float]:
    return {
        thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()
    }


def main() -> None:
    """Run the command line above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("app", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    arguments = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    sampler = Sampler(threading.get_ident(), arguments.state / "profile.json")
    signal.signal(signal.SIGUSR1, sampler.toggle)
    asyncio.run(start_host(arguments.app, port=arguments.port, state=arguments.state))


if __name__ == "__main__":
    main()
