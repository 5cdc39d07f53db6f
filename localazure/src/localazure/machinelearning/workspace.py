"""The workspace: environment, tables and events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from localazure.faults.injector import Injector
from localazure.machinelearning.addresses import workspace_id
from localazure.machinelearning.authorization import SCOPE
from localazure.machinelearning.configuration import Configuration
from localazure.machinelearning.events import EventOutbox
from localazure.runtime.environment import Environment
from localazure.sqlite.database import Database

T = TypeVar("T")


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
    scope: str = SCOPE
    """The name of its scope in the table of roles."""

    def clock_of_tokens(self) -> float:
        """Epoch seconds to issue and check tokens, with the fault plan's clock skew."""
        return self.clock() + self.faults.clock_skew_seconds()

    @property
    def id(self) -> str:
        """The workspace's ARM id, also the topic of its events."""
        return workspace_id(self.environment)

    async def write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Apply a change in one transaction, and have its events published."""
        result = await self.database.write(change)
        self.events.filled.set()
        return result
