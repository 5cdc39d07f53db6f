"""A durable task hub in memory, with the methods of the durable client that handlers use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from azure.durable_functions import OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from azure.durable_functions.models.PurgeHistoryResult import PurgeHistoryResult

from handlers.platform.instances import is_live

STARTED_AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
ALWAYS_FROM, ALWAYS_TO = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
PAGE_INSTANCES = 100


class TaskHub:
    """A fake of DurableOrchestrationClient with the same errors."""

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

    async def get_status(
        self, instance_id: str, *, show_input: bool = False
    ) -> DurableOrchestrationStatus:
        if instance_id not in self.documents or instance_id in self.hidden_once:
            self.hidden_once.discard(instance_id)
            return DurableOrchestrationStatus.from_json("")
        document = dict(self.documents[instance_id])
        if not show_input:
            document["input"] = None
        return DurableOrchestrationStatus.from_json(document)

    async def get_status_by(
        self,
        *,
        created_time_from: datetime = ALWAYS_FROM,
        created_time_to: datetime = ALWAYS_TO,
        runtime_status: list[OrchestrationRuntimeStatus],
        instance_id_prefix: str,
    ) -> list[DurableOrchestrationStatus]:
        """Like on Azure Storage: sorted by id, and only the first page."""
        self.queries += 1
        wanted = {status.value for status in runtime_status}
        found = [
            instance
            for instance, document in sorted(self.documents.items())
            if created_time_from
            <= datetime.fromisoformat(document["createdTime"])
            <= created_time_to
            and (not wanted or document["runtimeStatus"] in wanted)
            and instance.startswith(instance_id_prefix)
        ]
        return [await self.get_status(instance) for instance in found[:PAGE_INSTANCES]]

    async def purge_instance_history_by(
        self,
        *,
        created_time_from: datetime,
        created_time_to: datetime,
        runtime_status: list[OrchestrationRuntimeStatus],
    ) -> PurgeHistoryResult:
        wanted = {status.value for status in runtime_status}
        purged = [
            instance
            for instance, document in self.documents.items()
            if created_time_from
            <= datetime.fromisoformat(document["createdTime"])
            <= created_time_to
            and document["runtimeStatus"] in wanted
        ]
        for instance in purged:
            del self.documents[instance]
        return PurgeHistoryResult(instancesDeleted=len(purged))

    async def start_new(self, orchestrator: str, instance: str, document: Any) -> str:
        if instance in self.documents and is_live(await self.get_status(instance)):
            raise Exception(f"An Orchestration instance {instance} already exists")  # noqa: TRY002 - as the SDK
        self.add(instance, orchestrator, document=document)
        self.started.append(instance)
        return instance

    async def raise_event(self, instance: str, event: str) -> None:
        if instance not in self.documents or not is_live(await self.get_status(instance)):
            raise Exception(f"No instance with ID {instance} found.")  # noqa: TRY002 - as the SDK
        self.raised.append((instance, event))
