"""Set-up's progress: the step, how far it is, and the time that it has taken."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, TextIO

# On a terminal the line is overwritten; in a log, a new line at intervals shows progress.
_TERMINAL_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 20.0
_LONGEST_LINE: Final = 100
_PIP_UNITS: Final = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_UV_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNIT_BYTES: Final = {**_PIP_UNITS, **_UV_UNITS}
_DOWNLOADING: Final = re.compile(r"\s*Downloading (\S+) \(([\d.]+) ?(\w+)\)")
_DOWNLOADED: Final = re.compile(r"\s*Downloaded (\S+)")
_INSTALLING: Final = re.compile(r"(Prepared \d+ packages?|Installing collected packages)")


class InstallerOutput:
    """How far an installer is, by the lines that pip or uv print where there is no terminal."""

    def __init__(self) -> None:
        self._downloaded_bytes = 0.0
        self._under_way: dict[str, float] = {}
        self._is_installing = False

    def feed(self, line: str) -> None:
        """Take the next line. uv says what has arrived; pip downloads one file after the other."""
        if one := _DOWNLOADED.match(line):
            self._downloaded_bytes += self._under_way.pop(one[1], 0.0)
        elif one := _DOWNLOADING.match(line):
            name, size_bytes = one[1], float(one[2]) * _UNIT_BYTES[one[3]]
            if "." in name:  # a file, so pip's: the one before it has arrived
                self._finish_all()
                name = name.partition("-")[0]
            self._under_way[name] = size_bytes
        elif _INSTALLING.match(line):
            self._finish_all()
            self._is_installing = True

    def _finish_all(self) -> None:
        self._downloaded_bytes += sum(self._under_way.values())
        self._under_way.clear()

    def __str__(self) -> str:
        """Such as "310 MB downloaded, under way: torch (502 MB)"; uv names no small files."""
        parts: list[str] = []
        if self._downloaded_bytes:
            parts.append(f"{_megabytes(self._downloaded_bytes)} downloaded")
        if self._is_installing:
            parts.append("installing")
        elif self._under_way:
            largest_first = sorted(self._under_way.items(), key=lambda one: -one[1])
            files = (f"{name} ({_megabytes(size_bytes)})" for name, size_bytes in largest_first)
            parts.append(f"under way: {', '.join(files)}")
        return ", ".join(parts) or "finding versions"


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


class Progress:
    """Shows the steps of the set-up, one after the other."""

    def __init__(self, steps: int, to: TextIO = sys.stderr) -> None:
        self._steps = steps
        self._step = 0
        self._to = to
        self._is_terminal = to.isatty()

    @contextmanager
    def step(self, title: str, state: object = "") -> Generator[None]:
        """Show a step while it runs, and its time when it is over.

        Args:
            title: what is being done.
            state: returns the current progress as text; called for each line.
        """
        self._step += 1
        prefix = f"[{self._step}/{self._steps}] {title}"
        began = time.monotonic()
        is_over = threading.Event()

        def show() -> None:
            pause = _TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS
            while not is_over.wait(pause):
                text = str(state)
                self._write(f"{prefix}: {_elapsed(began)}{text and ', '}{text}", is_last=False)

        self._write(prefix, is_last=False)
        painter = threading.Thread(target=show, daemon=True)
        painter.start()
        outcome = "failed after"
        try:
            yield
            outcome = "done in"
        finally:
            is_over.set()
            painter.join()
            self._write(f"{prefix}: {outcome} {_elapsed(began)}", is_last=True)

    def _write(self, line: str, *, is_last: bool) -> None:
        if self._is_terminal:
            self._to.write("\r\x1b[K" + line[:_LONGEST_LINE] + ("\n" if is_last else ""))
        else:
            self._to.write(line + "\n")
        self._to.flush()


def _elapsed(began: float) -> str:
    seconds = int(time.monotonic() - began)
    return f"{seconds // 60}:{seconds % 60:02d}"
