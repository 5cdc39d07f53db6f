"""Messages between workspace and runner: status lines, stop orders, and the result file."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from localazure.machinelearning.jobs.states import JobStatus
from localazure.processes.atomic_file import write_atomically


class Outcome(StrEnum):
    """How an attempt can end."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    PREEMPTED = "Preempted"
    """The job does not end: it is queued again."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one attempt ended."""

    attempt: int
    outcome: Outcome
    code: str = ""
    """The error code; empty without an error."""
    message: str = ""

    def save(self, target: Path) -> None:
        """Write the result to a file, atomically."""
        write_atomically(target, json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, source: Path, attempt: int) -> Self | None:
        """Read the result of an attempt; None if the attempt has none."""
        try:
            document: dict[str, Any] = json.loads(source.read_text())
        except FileNotFoundError:
            return None
        if document["attempt"] != attempt:
            return None
        document["outcome"] = Outcome(document["outcome"])
        return cls(**document)


@dataclass(frozen=True, kw_only=True)
class StopOrder:
    """The workspace's order to end the attempt: one line on the runner's stdin."""

    outcome: Outcome = Outcome.CANCELED
    is_graceful: bool = True
    """Whether to send SIGTERM before SIGKILL; false on a preempted node."""
    code: str = ""
    message: str = ""

    @classmethod
    def parse(cls, line: str | bytes) -> Self:
        """Read what `to_json` wrote."""
        document: dict[str, Any] = json.loads(line)
        document["outcome"] = Outcome(document["outcome"])
        return cls(**document)

    def result(self, attempt: int) -> Result:
        """The result of an attempt that ended by this order."""
        return Result(attempt=attempt, outcome=self.outcome, code=self.code, message=self.message)

    def to_json(self) -> str:
        """Serialize to one line without a newline."""
        return json.dumps(dataclasses.asdict(self))


def report(status: JobStatus) -> None:
    """Report a new state of the attempt to the workspace on stdout."""
    print(json.dumps({"status": status}), flush=True)  # noqa: T201 - stdout is the channel


def parse_report(line: bytes) -> JobStatus:
    """Read what `report` wrote."""
    return JobStatus(json.loads(line)["status"])
