"""The workspace: environment, tables and events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localazure.faults.injector import Injector
from localazure.machinelearning.addresses import workspace_id
from localazure.machinelearning.configuration import Configuration
from localazure.machinelearning.events import EventOutbox
from localazure.machinelearning.jobs.folder import JobFolder
from localazure.machinelearning.jobs.store import JobTransaction
from localazure.runtime.environment import Environment
from localazure.sqlite.database import Database


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The workspace of one state folder."""

    environment: Environment
    configuration: Configuration
    database: Database
    events: EventOutbox
    clock: Callable[[], float]
    """Epoch seconds."""
    faults: Injector

    def clock_of_tokens(self) -> float:
        """Epoch seconds to issue and check tokens, with the fault plan's clock skew."""
        return self.clock() + self.faults.clock_skew_seconds()

    @property
    def id(self) -> str:
        """The workspace's ARM id, also the topic of its events."""
        return workspace_id(self.environment)

    def jobs(self, connection: sqlite3.Connection) -> JobTransaction:
        """Changes to the workspace's jobs, in the connection's transaction."""
        return JobTransaction(connection, self.id, self.clock())

    @property
    def jobs_folder(self) -> Path:
        """The folder that contains the folders of unfinished jobs."""
        folder = self.environment.part_folder("machinelearning").resolve() / "jobs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def job_folder(self, name: str) -> JobFolder:
        """The folder of one job."""
        return JobFolder(self.jobs_folder / name)
