"""Runs the entry script of a batch deployment over mini-batches.

Worker processes import the entry script and call `init()` once, then `run(mini_batch)` for each
mini-batch, a list of file paths. `run` returns a list or a DataFrame with one element for each file
that it processed. The driver:

1. divides the files of the input into mini-batches;
2. hands the mini-batches to the workers;
3. retries a mini-batch, at most `max_retries` times, after an exception, fewer results than files,
   the end of the worker, or `timeout_seconds`, after which it replaces the worker;
4. appends the results to one file, in the order in which mini-batches end;
5. fails as soon as more files have failed than allowed.

A worker ends with its driver.

https://learn.microsoft.com/azure/machine-learning/how-to-batch-scoring-script
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import shlex
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

IGNORE_ALL = -1
"""The threshold that allows any number of failures."""

_NUMBERS = {
    "mini_batch_size": int,
    "workers": int,
    "error_threshold": int,
    "max_retries": int,
    "timeout_seconds": float,
}
"""The numeric settings of the command line, and their types."""


class MiniBatchError(Exception):
    """The run failed; the message has the cause."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The entry script, its mini-batches, and how many failures are allowed."""

    entry_script: Path
    data: Path
    """A file, or a folder with files at any depth."""
    mini_batch_size: int
    """Number of files."""
    workers: int
    error_threshold: int
    """The number of files that may fail."""
    max_retries: int
    timeout_seconds: float
    """The limit for one attempt at one mini-batch."""
    append_row_to: Path | None = None


@dataclass
class Summary:
    """The counts and results of a finished run."""

    files: int = 0
    failed_files: int = 0
    mini_batches: int = 0
    failed_mini_batches: int = 0

    def __str__(self) -> str:
        return (
            f"{self.mini_batches} mini-batches, {self.failed_mini_batches} of them failed; "
            f"{self.files} files, {self.failed_files} of them failed"
        )


def shell_command(settings: Settings) -> str:
    """The command of a job that runs the driver.

    The paths of data and rows may begin with an expression, such as `${{inputs.data}}`.
    """
    rows = settings.append_row_to
    words = [
        shlex.quote(sys.executable),
        "-P",  # keeps this file's folder off the entry script's sys.path
        shlex.quote(__file__),
        *(f"{_flag(name)}={getattr(settings, name)}" for name in _NUMBERS),
        *([f'--append-row-to "{rows}"'] if rows else []),
        shlex.quote(str(settings.entry_script)),
        f'"{settings.data}"',
    ]
    return " ".join(words)


def format_rows(results: Any) -> str:
    """Format the result of `run` as rows, as Azure does.

    A DataFrame becomes CSV with spaces, without a header; an element of a list is written with
    `str`. Azure's pages read them with `read_csv(…, header=None, sep=" ")` and `ast.literal_eval`:
    https://learn.microsoft.com/azure/machine-learning/how-to-mlflow-batch
    """
    if hasattr(results, "to_csv"):
        return str(results.to_csv(header=False, index=False, sep=" "))
    return "".join(f"{element}\n" for element in results)


def list_mini_batches(data: Path, size: int) -> list[list[str]]:
    """The paths of the file, or of all files below the folder, sorted by name, `size` at a time.

    Raises:
        MiniBatchError: there are no files.
    """
    paths = [data] if data.is_file() else [each for each in data.rglob("*") if each.is_file()]
    files = [str(each) for each in sorted(paths)]
    if not files:
        raise MiniBatchError(f"no file in {data}")
    return [files[start : start + size] for start in range(0, len(files), size)]


@dataclass
class _MiniBatch:
    files: list[str]
    retries: int = 0


@dataclass
class _Worker:
    process: SpawnProcess
    connection: Connection
    batch: _MiniBatch | None = None
    deadline: float = float("inf")
    is_ready: bool = False
    """Whether `init()` has returned."""

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Driver:
    """Runs all mini-batches once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting: deque[_MiniBatch] = deque()
        self._workers: list[_Worker] = []
        self.summary = Summary()

    def run(self) -> Summary:
        """Run all mini-batches.

        Raises:
            MiniBatchError: there is no input, `init` failed, or too many files failed.
        """
        batches = list_mini_batches(self._settings.data, self._settings.mini_batch_size)
        self._waiting.extend(map(_MiniBatch, batches))
        self.summary.mini_batches = len(batches)
        self.summary.files = sum(map(len, batches))
        rows = self._settings.append_row_to
        if rows is not None:  # remove the rows of an earlier attempt of the job
            rows.parent.mkdir(parents=True, exist_ok=True)
            rows.write_text("")
        try:
            for _ in range(min(self._settings.workers, len(batches))):
                self._workers.append(self._start_worker())
            while self._waiting or any(worker.batch for worker in self._workers):
                self._step()
        finally:
            for worker in self._workers:
                worker.end()
        return self.summary

    def _start_worker(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        driver_end, worker_end = context.Pipe()
        arguments = (worker_end, self._settings.entry_script)
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        worker_end.close()
        return _Worker(process, driver_end)

    def _step(self) -> None:
        """Wait for one message, the end of a worker or a deadline, and act on it."""
        pause = min(worker.deadline for worker in self._workers) - time.monotonic()
        timeout = None if pause == float("inf") else max(0.0, pause)
        ready = wait([worker.connection for worker in self._workers], timeout)
        for index, worker in enumerate(self._workers):
            if worker.connection in ready:
                try:
                    rows, succeeded, error = worker.connection.recv()
                except EOFError:
                    self._replace(index, "its worker process ended")
                    continue
                if worker.batch is not None:
                    self._store(worker.batch, rows, succeeded, error)
                elif error:
                    raise MiniBatchError(f"init() failed: {error}")
                worker.is_ready = True
                self._assign(worker)
            elif time.monotonic() >= worker.deadline:
                self._replace(index, f"it took longer than {self._settings.timeout_seconds:g} s")

    def _assign(self, worker: _Worker) -> None:
        worker.batch, worker.deadline = None, float("inf")
        if self._waiting:
            worker.batch = self._waiting.popleft()
            worker.deadline = time.monotonic() + self._settings.timeout_seconds
            worker.connection.send(worker.batch.files)

    def _replace(self, index: int, reason: str) -> None:
        worker = self._workers[index]
        worker.end()
        if not worker.is_ready:
            raise MiniBatchError(f"init() ended the process with code {worker.process.exitcode}")
        if worker.batch is not None:
            self._store(worker.batch, "", 0, reason)
        self._workers[index] = self._start_worker()

    def _store(self, batch: _MiniBatch, rows: str, succeeded: int, error: str) -> None:
        """Store the outcome of one attempt, or queue the mini-batch again."""
        files = batch.files
        missing = len(files) if error else max(0, len(files) - succeeded)
        if missing:
            reason = error or f"run() returned {succeeded} results for {len(files)} files"
            print(f"mini-batch of {files[0]}: {reason}", flush=True)  # noqa: T201 - the job's log
            if batch.retries < self._settings.max_retries:
                batch.retries += 1
                self._waiting.append(batch)
                return
        if self._settings.append_row_to is not None:
            with self._settings.append_row_to.open("a") as file:
                file.write(rows)
        if missing:
            self._count_failure(missing)

    def _count_failure(self, files: int) -> None:
        summary, allowed = self.summary, self._settings.error_threshold
        summary.failed_mini_batches += 1
        summary.failed_files += files
        failed = summary.failed_files
        if allowed != IGNORE_ALL and failed > allowed:
            raise MiniBatchError(
                f"{failed} failed, more than error_threshold = {allowed}: {summary}"
            )


def _work(connection: Connection, entry_script: Path) -> None:
    """Run a worker: send `(rows, successes, error)` after `init()` and for each mini-batch."""
    try:
        run = _load(entry_script)
    except BaseException as error:  # noqa: BLE001 - the script's: logged, and reported
        traceback.print_exc()
        connection.send(("", 0, _describe(error)))
        return
    connection.send(("", 0, ""))
    while True:
        try:
            files = connection.recv()
        except EOFError:  # the driver has ended
            return
        try:
            results = run(files)
            connection.send((format_rows(results), len(results), ""))
        except Exception as error:  # noqa: BLE001 - the script's: logged, and counted
            traceback.print_exc()
            connection.send(("", 0, _describe(error)))


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _load(script: Path) -> Callable[[list[str]], Any]:
    """Import the entry script, call its `init()`, and return its `run`."""
    sys.argv = [str(script)]
    sys.path.insert(0, str(script.parent.resolve()))
    spec = importlib.util.spec_from_file_location("entry_module", script)
    if spec is None or spec.loader is None:
        raise MiniBatchError(f"{script} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if hasattr(module, "init"):
        module.init()
    return module.run


def _parse(words: Sequence[str]) -> Settings:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("entry_script", type=Path)
    parser.add_argument("data", type=Path)
    for name, kind in _NUMBERS.items():
        parser.add_argument(_flag(name), type=kind, required=True)
    parser.add_argument("--append-row-to", type=Path)
    return Settings(**vars(parser.parse_args(words)))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


if __name__ == "__main__":
    try:
        print(Driver(_parse(sys.argv[1:])).run(), flush=True)  # noqa: T201 - the job's log
    except MiniBatchError as failure:
        print(failure, file=sys.stderr, flush=True)  # noqa: T201 - the job's log
        sys.exit(1)
