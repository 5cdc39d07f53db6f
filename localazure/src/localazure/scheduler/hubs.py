"""The task hubs of a scheduler, each with its own engine and its own file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.protocol.calls import InvalidHubName
from localazure.functions.durable.runtime.dispatcher import Dispatcher
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.store.store import Store
from localazure.scheduler.connected_workers import ConnectedWorkers
from localazure.scheduler.work_items import ProtocolItems

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

# An item that waits for a worker is a run of the engine. The workers' own limits apply.
_NO_LIMIT: Final = 1_000_000

_OPTIONS: Final = DurableOptions.model_validate(
    {
        "maxConcurrentActivityFunctions": _NO_LIMIT,
        "maxConcurrentOrchestratorFunctions": _NO_LIMIT,
        "maxConcurrentEntityFunctions": _NO_LIMIT,
        "storageProvider": {"type": "azureManaged"},
    }
)


class _AnyFunctions(KnownFunctions):
    """The functions are known to the workers, not to the scheduler."""

    def resolve(self, kind: str, name: str) -> str | None:
        del kind
        return name


class Hub(TaskHub):
    """One task hub.

    Attributes:
        items: passes work to the workers that are connected to it.
        workers: these workers, as the engine's.
    """

    def __init__(self, path: Path) -> None:
        settings = HubSettings(known=_AnyFunctions(), options=_OPTIONS)
        store = Store(path)
        self.items = ProtocolItems()
        self.workers = ConnectedWorkers(settings, self.items)
        super().__init__(settings, store, Dispatcher(settings, store, self.workers))
        self.dispatcher.start()

    async def close(self) -> None:
        """Close it. Work that has not ended continues when the hub is opened again."""
        self.items.close()
        await self.dispatcher.stop(0)
        self.store.close()


class Hubs:
    """All task hubs. One is opened, or created, when a client or a worker first names it.

    Args:
        folder: has a file for each.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, Hub] = {}

    def get(self, name: str) -> Hub:
        """Return a task hub.

        Raises:
            InvalidHubName: the name is not possible.
        """
        if not _NAME.fullmatch(name):
            raise InvalidHubName(f"the task hub {name!r} must have 1 to 64 letters, digits, - or _")
        key = name.lower()
        if key not in self._open:
            self._open[key] = Hub(self._folder / f"{key}.db")
        return self._open[key]

    def names(self) -> list[str]:
        """The names of those that exist."""
        return sorted({*self._open, *(file.stem for file in self._folder.glob("*.db"))})

    async def delete(self, name: str) -> None:
        """Delete a task hub with all its instances. Raises as `get`."""
        await self.get(name).close()
        del self._open[name.lower()]
        for file in self._folder.glob(f"{name.lower()}.db*"):
            file.unlink(missing_ok=True)

    async def close(self) -> None:
        """Close all task hubs."""
        await asyncio.gather(*(hub.close() for hub in self._open.values()))
