"""Fakes of `DurableOrchestrationClient`: the methods that the app uses, with the same refusals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from azure.durable_functions import OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from azure.durable_functions.models.PurgeHistoryResult import PurgeHistoryResult

from handlers.platform.instances import is_live

STARTED_AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
ALWAYS_FROM, ALWAYS_TO = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
PAGE_INSTANCES = 100
Result = TypeVar("Result")


class DurableClient(ABC):
    """The client of some instances, each a document as the extension's HTTP API shows it."""

    @abstractmethod
    def names(self) -> Iterable[str]:
        """The ids of all instances."""

    @abstractmethod
    def created_and_status(self, name: str) -> tuple[datetime, str]:
        """When an instance was created, and its runtime status."""

    @abstractmethod
    def document(self, name: str, *, show_input: bool) -> dict[str, Any] | None:
        """An instance; None if there is none."""

    @abstractmethod
    def purge(self, name: str) -> None: ...

    @abstractmethod
    def start(self, orchestrator: str, instance: str, document: Any) -> None: ...

    @abstractmethod
    def send(self, instance: str, event: str) -> None:
        """Send an event to a live instance."""

    async def call(self, operation: str, effect: Callable[[], Result]) -> Result:
        """Do a call of the extension."""
        del operation
        return effect()

    async def get_status(
        self, instance_id: str, *, show_input: bool = False
    ) -> DurableOrchestrationStatus:
        return await self.call(
            "get status", lambda: self._status(instance_id, show_input=show_input)
        )

    async def get_status_by(
        self,
        *,
        created_time_from: datetime = ALWAYS_FROM,
        created_time_to: datetime = ALWAYS_TO,
        runtime_status: Sequence[OrchestrationRuntimeStatus] = (),
        instance_id_prefix: str = "",
    ) -> list[DurableOrchestrationStatus]:
        """In order of id, the first page only, as on Azure Storage."""

        def effect() -> list[DurableOrchestrationStatus]:
            found = self._find(created_time_from, created_time_to, runtime_status)
            page = sorted(name for name in found if name.startswith(instance_id_prefix))
            return [self._status(name) for name in page[:PAGE_INSTANCES]]

        return await self.call("query", effect)

    async def purge_instance_history_by(
        self,
        *,
        created_time_from: datetime,
        created_time_to: datetime,
        runtime_status: Sequence[OrchestrationRuntimeStatus],
    ) -> PurgeHistoryResult:
        def effect() -> PurgeHistoryResult:
            purged = self._find(created_time_from, created_time_to, runtime_status)
            for name in purged:
                self.purge(name)
            return PurgeHistoryResult(instancesDeleted=len(purged))

        return await self.call("purge", effect)

    async def start_new(self, orchestrator: str, instance: str, document: Any) -> str:
        await self.call("start", lambda: self.start(orchestrator, instance, document))
        return instance

    async def raise_event(self, instance: str, event: str) -> None:
        def effect() -> None:
            if not is_live(self._status(instance)):
                raise RuntimeError(f"No instance with ID {instance} found.")
            self.send(instance, event)

        await self.call("raise event", effect)

    def _find(
        self, since: datetime, until: datetime, states: Sequence[OrchestrationRuntimeStatus]
    ) -> list[str]:
        wanted = {status.value for status in states}
        known = ((name, *self.created_and_status(name)) for name in self.names())
        return [
            name
            for name, created, status in known
            if since <= created <= until and (not wanted or status in wanted)
        ]

    def _status(self, name: str, *, show_input: bool = False) -> DurableOrchestrationStatus:
        document = self.document(name, show_input=show_input)
        return DurableOrchestrationStatus.from_json("" if document is None else document)


class TaskHub(DurableClient):
    """Instances that a test adds, and those that are started; nothing runs."""

    def __init__(self, started_at: datetime = STARTED_AT) -> None:
        self.started_at = started_at
        self.queries = 0
        self.documents: dict[str, dict[str, Any]] = {}
        self.raised: list[tuple[str, str]] = []
        self.started: list[str] = []
        self.hidden_once: set[str] = set()
        """Instances that the next read of their status misses, as if they were started after it."""

    def add(
        self,
        instance: str,
        name: str,
        runtime_status: str = "Running",
        *,
        custom_status: Any = None,
        document: Any = None,
        output: Any = None,
        created: datetime | None = None,
    ) -> None:
        created = created or self.started_at + timedelta(seconds=len(self.documents))
        self.documents[instance] = {
            "name": name,
            "instanceId": instance,
            "createdTime": created.isoformat(),
            "lastUpdatedTime": created.isoformat(),
            "input": document,
            "output": output,
            "runtimeStatus": runtime_status,
            "customStatus": custom_status,
        }

    async def call(self, operation: str, effect: Callable[[], Result]) -> Result:
        self.queries += operation == "query"
        return effect()

    def names(self) -> Iterable[str]:
        return list(self.documents)

    def created_and_status(self, name: str) -> tuple[datetime, str]:
        document = self.documents[name]
        return datetime.fromisoformat(document["createdTime"]), document["runtimeStatus"]

    def document(self, name: str, *, show_input: bool) -> dict[str, Any] | None:
        if name not in self.documents or name in self.hidden_once:
            self.hidden_once.discard(name)
            return None
        shown = self.documents[name]
        return {**shown, "input": shown["input"] if show_input else None}

    def purge(self, name: str) -> None:
        del self.documents[name]

    def start(self, orchestrator: str, instance: str, document: Any) -> None:
        if instance in self.documents and is_live(self._status(instance)):
            raise RuntimeError(f"An Orchestration instance {instance} already exists")
        self.add(instance, orchestrator, document=document)
        self.started.append(instance)

    def send(self, instance: str, event: str) -> None:
        self.raised.append((instance, event))
