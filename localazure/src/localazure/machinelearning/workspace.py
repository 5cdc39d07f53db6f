"""The workspace: its environment, tables and events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localazure.faults.injector import Injector
from localazure.machinelearning.addresses import workspace_id
from localazure.machinelearning.configuration import Configuration
from localazure.machinelearning.events import EventOutbox
from localazure.machinelearning.job_folder import JobFolder
from localazure.machinelearning.job_table import JobTransaction
from localazure.runtime.environment import Environment
from localazure.sqlite.database import Database


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """One workspace of one state folder."""

    environment: Environment
    configuration: Configuration
    database: Database
    events: EventOutbox
    clock: Callable[[], float]
    """Epoch seconds."""
    faults: Injector

    def clock_of_tokens(self) -> float:
        """Epoch seconds by which tokens are issued and checked; wrong where the plan says so."""
        return self.clock() + self.faults.clock_skew_seconds()

    @property
    def id(self) -> str:
        """Its ARM id, also the topic of its events."""
        return workspace_id(self.environment)

    def jobs(self, connection: sqlite3.Connection) -> JobTransaction:
        """Changes of its jobs in a transaction."""
        return JobTransaction(connection, self.id, self.clock())

    @property
    def jobs_folder(self) -> Path:
        """The parent of the folders of unfinished jobs."""
        folder = self.environment.part_folder("machinelearning").resolve() / "jobs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def job_folder(self, name: str) -> JobFolder:
        """The folder of one job."""
        return JobFolder(self.jobs_folder / name)
