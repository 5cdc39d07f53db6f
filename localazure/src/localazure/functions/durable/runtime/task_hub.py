"""The operations of clients on the task hub, independent of HTTP."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import FINISHED, LIVE, Execution, Instance, Status
from localazure.functions.durable.engine.instance_id import check_instance_id
from localazure.functions.durable.runtime import entities
from localazure.functions.durable.runtime.dispatcher import Dispatcher
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.store.records import (
    InstanceExists,
    InstanceMissing,
    InstanceQuery,
    NotFailed,
)
from localazure.functions.durable.store.rewind_tree import rewriting
from localazure.functions.durable.store.store import Store

_logger = logging.getLogger(__name__)


class UnknownFunction(Exception):
    """No function of this kind and name is registered. The message lists the registered ones."""


class NotFinished(Exception):
    """Only a finished instance can be purged."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(
            "Only orchestrations in a terminal state can be purged, but the orchestration with "
            f"instance ID {instance.execution.instance_id} has status {instance.status}"
        )


class TaskHub:
    """Operations on instances and entities. They return when their changes are durable."""

    def __init__(self, settings: HubSettings, store: Store, dispatcher: Dispatcher) -> None:
        self.settings = settings
        self.store = store
        self.dispatcher = dispatcher

    async def start(
        self,
        name: str,
        *,
        instance_id: str | None = None,
        input_json: str | None = None,
        version: str | None = None,
        opening_json: str | None = None,
    ) -> str:
        """Start an orchestration and return its instance id; see `Execution` for `opening_json`.

        The Azure Storage provider checks for a live instance before it writes a new one. So, of two
        simultaneous starts with one id, both report success here, too, and the later input is
        dropped.

        Raises:
            UnknownFunction: there is no such orchestrator.
            InvalidInstanceId: the id is not allowed.
            PayloadTooLarge: the storage provider does not accept the input.
            InstanceExists: an instance with this id has not finished.
        """
        if self.settings.known.resolve("orchestrator", name) is None:
            raise UnknownFunction(self.settings.known.missing("orchestrator", name))
        if instance_id is not None:
            check_instance_id(instance_id)
        self.settings.payloads.check(f"the input of orchestrator '{name}'", input_json)
        execution = Execution(
            instance_id=instance_id or uuid.uuid4().hex,
            execution_id=uuid.uuid4().hex,
            name=name,
            version=version or self.settings.options.default_version,
            input_json=input_json,
            created_at=self.settings.clock(),
            opening_json=opening_json,
        )
        before = self.store.instance(execution.instance_id)
        try:
            await self.store.create(execution)
        except InstanceExists:
            if not self.settings.options.is_in_azure_storage or (before and before.status in LIVE):
                raise
            _logger.warning(
                "simultaneous starts of instance %s: both succeed, this input is ignored",
                execution.instance_id,
            )
            return execution.instance_id
        self.dispatcher.begin(execution)
        return execution.instance_id

    async def reached(self, instance_id: str, statuses: Collection[Status] = FINISHED) -> Instance:
        """Wait until an instance has one of these statuses, and return the instance.

        Raises:
            InstanceMissing: there is none.
        """
        # The event loop does not run between the check and the wait, so no change is missed.
        while (instance := self.instance(instance_id)).status not in statuses:
            await self.dispatcher.completion_waiters.wait(instance_id)
        return instance

    def instance(self, instance_id: str) -> Instance:
        """One instance.

        Raises:
            InstanceMissing: there is none.
        """
        instance = self.store.instance(instance_id)
        if instance is None:
            raise InstanceMissing(instance_id)
        return instance

    def history(self, instance: Instance) -> list[Event]:
        """The history of an instance, as far as it is durable."""
        return history.decode(",".join(self.store.history(instance.execution.execution_id)))

    async def raise_event(self, instance_id: str, name: str, input_json: str | None) -> None:
        """Send an external event.

        Raises:
            InstanceMissing: there is no such instance.
            InstanceFinished: the instance has finished.
            PayloadTooLarge: the storage provider does not accept the event.
        """
        self.settings.payloads.check(f"the event '{name}'", input_json)
        await self.send(instance_id, history.event_raised(self.settings.now(), name, input_json))

    async def terminate(self, instance_id: str, reason: str) -> None:
        """Terminate an instance and its sub-orchestrations. Raises as `raise_event`."""
        await self.send(instance_id, history.execution_terminated(self.settings.now(), reason))

    async def suspend(self, instance_id: str, reason: str) -> None:
        """Suspend an instance. Raises as `raise_event`."""
        await self.send(instance_id, history.execution_suspended(self.settings.now(), reason))

    async def resume(self, instance_id: str, reason: str) -> None:
        """Resume an instance. Raises as `raise_event`."""
        await self.send(instance_id, history.execution_resumed(self.settings.now(), reason))

    async def restart(self, instance_id: str, *, with_new_id: bool) -> str:
        """Start an orchestration again with the same input; return its instance id.

        Raises:
            InstanceMissing: there is no such instance.
            InstanceExists: the id is to be kept, and the instance has not finished.
            UnknownFunction: the app does not have the orchestrator.
        """
        execution = self.instance(instance_id).execution
        return await self.start(
            execution.name,
            instance_id=None if with_new_id else instance_id,
            input_json=execution.input_json,
            version=execution.version,
            opening_json=history.context_of(
                json.loads(execution.opening_json or "{}"), "Tags", "ParentTraceContext"
            ),
        )

    async def rewind(self, instance_id: str, reason: str) -> None:
        """Rewind a failed instance to the state before its failure.

        Raises:
            InstanceMissing: there is no such instance.
            NotFailed: the instance did not fail.
        """
        instance = self.instance(instance_id)
        if instance.status is not Status.FAILED:
            raise NotFailed(instance_id)
        # One transaction: otherwise a sub-orchestration could end while its parent is still failed,
        # and its result would be lost.
        rewrites = rewriting(self.store, instance, reason, self.settings.now())
        await self.store.rewrite(rewrites, self.settings.clock())
        for one in rewrites:
            self.dispatcher.go_on(one)

    async def purge(self, instance_id: str) -> int:
        """Delete a finished instance; return 1.

        Raises:
            InstanceMissing: there is no such instance.
            NotFinished: the instance has not finished.
        """
        instance = self.instance(instance_id)
        count = await self.store.purge([instance_id])
        if not count:
            raise NotFinished(instance)
        return count

    async def purge_by(self, wanted: InstanceQuery) -> int:
        """Delete the finished instances that meet all conditions; return their number.

        It is not one transaction, so that other requests are served meanwhile.
        """
        count = 0
        for page in self.store.pages(wanted):
            count += await self.store.purge(
                [one.execution.instance_id for one in page if one.status in FINISHED]
            )
        return count

    async def signal_entity(
        self, name: str, key: str, operation: str, input_json: str | None
    ) -> None:
        """Send an operation to an entity without waiting for a response.

        Raises:
            UnknownFunction: there is no such entity function.
            PayloadTooLarge: the storage provider does not accept the input.
        """
        self.settings.payloads.check(f"the input of entity '{name}'", input_json)
        if self.settings.known.resolve("entity", name) is None:
            raise UnknownFunction(self.settings.known.missing("entity", name))
        entity_id = entities.entity_id(name, key)
        await self.send(entity_id, self.dispatcher.worker.signal(entity_id, operation, input_json))

    async def send(self, target: str, event: Event) -> None:
        """Send an event to an instance or an entity.

        Raises:
            InstanceMissing: there is no such instance.
            InstanceFinished: the instance has finished.
        """
        message = self.store.message(target, event)
        await self.store.post(message)
        self.dispatcher.deliver(message)
