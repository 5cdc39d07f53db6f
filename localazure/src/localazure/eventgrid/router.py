"""Matches published events to subscriptions and runs one delivery worker per subscription."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import aiohttp

from localazure.errors import ConfigurationError
from localazure.eventgrid import dead_letters
from localazure.eventgrid.configuration import (
    SYSTEM_TOPICS,
    Configuration,
    Subscription,
    Topic,
    parse_subscription,
)
from localazure.eventgrid.delivery import DeliveryWorker
from localazure.eventgrid.destination_clients import DestinationClients
from localazure.eventgrid.destinations import (
    ServiceBusDestination,
    StorageQueueDestination,
    WebHookDestination,
)
from localazure.eventgrid.faulty_endpoint import FaultyEndpoint
from localazure.eventgrid.http_endpoint import HttpEndpoint
from localazure.eventgrid.schemas import Event, Schema
from localazure.eventgrid.store import Store
from localazure.faults.injector import Injector
from localazure.processes.background import cancel, keep_doing
from localazure.processes.pauses import wait_at_most
from localazure.runtime.environment import Environment

if TYPE_CHECKING:
    from localazure.eventgrid.service_bus_endpoint import ServiceBusEndpoint
    from localazure.eventgrid.storage_queue_endpoint import StorageQueueEndpoint

    _Endpoint = HttpEndpoint | ServiceBusEndpoint | StorageQueueEndpoint

logger = logging.getLogger(__name__)

# The first retry of a handshake is early: the receiver may be a process that is still starting.
HANDSHAKE_RETRY_SECONDS = 0.1
MAX_HANDSHAKE_RETRY_SECONDS = 2.0
PUT_SOURCE = "request body"


class _Running:
    """A subscription, its worker, and the task that runs them."""

    def __init__(self, worker: DeliveryWorker, validation_code: str) -> None:
        self.worker = worker
        self.validation_code = validation_code
        self.validated = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Router:
    """All topics and subscriptions of one environment.

    Args:
        session: the session of HTTP deliveries.
        clients: opens the clients of other deliveries.
        faults: injected faults of deliveries.
    """

    def __init__(
        self,
        environment: Environment,
        configuration: Configuration,
        store: Store,
        session: aiohttp.ClientSession,
        clients: DestinationClients,
        faults: Injector,
    ) -> None:
        self._environment = environment
        self._configuration = configuration
        self._store = store
        self._session = session
        self._clients = clients
        self._faults = faults
        self._running: dict[str, _Running] = {}

    async def start(self) -> None:
        """Run the subscriptions of the file. Then run stored subscriptions with other names."""
        for subscription in self._configuration.event_subscriptions:
            self._run(subscription)
        for name, body in self._store.put_subscriptions():
            if name in self._running:
                continue
            try:
                self._run(self._parse(body))
            except ConfigurationError as error:
                logger.warning("subscription %s, put at run time, is ignored: %s", name, error)
        for name in self._store.subscriptions_with_deliveries() - self._running.keys():
            count = await self._store.remove_subscription(name)
            logger.warning(
                "subscription %s is not configured; %s undelivered events are dropped", name, count
            )

    async def stop(self) -> None:
        """Stop all workers. Undelivered events stay stored for the next start."""
        # In parallel: the SDK of Service Bus takes a second or two to close a sender.
        await asyncio.gather(*map(self._end, list(self._running)))

    def topic(self, name: str) -> Topic | None:
        """The topic with this name, if any."""
        return self._configuration.topics_by_name.get(name)

    def resource_id(self, topic: Topic) -> str:
        """The field `topic` of events; empty for system topics, whose publishers set it."""
        if topic.name in SYSTEM_TOPICS:
            return ""
        return self._environment.resource_id(f"Microsoft.EventGrid/topics/{topic.name}")

    async def publish(self, topic: Topic, events: Sequence[Event]) -> None:
        """Accept valid events. They are durable on return, and delivered afterwards."""
        workers = [
            running.worker
            for running in self._running.values()
            if running.worker.subscription.topic == topic.name
        ]
        matched = [
            (
                event,
                [
                    worker.subscription.name
                    for worker in workers
                    if worker.subscription.properties.filter.matches(event, topic.input_schema)
                ],
            )
            for event in events
        ]
        await self._store.accept(matched, topic.input_schema, time.time())
        for worker in workers:
            worker.wake()

    async def put_subscription(self, name: str, body: Mapping[str, Any]) -> Subscription:
        """Add a persistent subscription, or replace one that was added at run time.

        Raises:
            ConfigurationError: the body is not valid, or the file defines this subscription.
        """
        self._check_not_in_file(name)
        body = {**body, "name": name}
        subscription = self._parse(body)
        await self._store.put_subscription(name, body)
        replaced = self._running.get(name)
        # No await is between the two, so that no event is published in between.
        self._run(subscription)
        await cancel(replaced and replaced.task)
        return subscription

    async def delete_subscription(self, name: str) -> bool:
        """Remove a subscription and its undelivered events. Returns False if it does not exist.

        Raises:
            ConfigurationError: the file defines this subscription.
        """
        self._check_not_in_file(name)
        if name not in self._running:
            return False
        await self._end(name)
        await self._store.remove_subscription(name)
        return True

    def describe(self, name: str) -> dict[str, Any] | None:
        """The counts of a subscription, and whether its endpoint is validated."""
        running = self._running.get(name)
        if running is None:
            return None
        return {
            "name": name,
            "topic": running.worker.subscription.topic,
            "provisioningState": (
                "Succeeded" if running.validated.is_set() else "AwaitingManualAction"
            ),
            "counts": self._store.counts(name),
        }

    def describe_all(self) -> list[dict[str, Any]]:
        """`describe` of every subscription."""
        return [
            description
            for name in self._running
            if (description := self.describe(name)) is not None
        ]

    async def validate(self, name: str, code: str) -> bool:
        """Confirm the endpoint by a manual handshake, with the code of the validation event."""
        running = self._running.get(name)
        if running is None or running.validation_code != code:
            return False
        running.validated.set()
        return True

    def _check_not_in_file(self, name: str) -> None:
        if any(item.name == name for item in self._configuration.event_subscriptions):
            file = self._environment.event_grid_config
            raise ConfigurationError(f"subscription {name!r} is defined in {file}: change it there")

    def _parse(self, body: Mapping[str, Any]) -> Subscription:
        return parse_subscription(body, PUT_SOURCE, self._configuration)

    def _run(self, subscription: Subscription) -> None:
        schema = self._configuration.delivery_schema(subscription)
        endpoint = self._endpoint(subscription, schema)

        worker = DeliveryWorker(
            subscription,
            self._store,
            FaultyEndpoint(endpoint, subscription.name, self._faults),
            functools.partial(dead_letters.write, self._clients.blobs, subscription, schema),
            schema=schema,
            schedule=self._configuration.retry_schedule,
        )
        running = _Running(worker, str(uuid.uuid4()))
        self._running[subscription.name] = running
        running.task = asyncio.create_task(self._run_worker(running, endpoint))

    # The first subscription that needs an SDK imports it.
    def _endpoint(self, subscription: Subscription, schema: Schema) -> _Endpoint:
        destination = subscription.properties.destination.properties
        if isinstance(destination, ServiceBusDestination):
            from localazure.eventgrid.service_bus_endpoint import (  # noqa: PLC0415 - see above
                ServiceBusEndpoint,
            )

            open_client = functools.partial(
                self._clients.service_bus, subscription.delivering_identity
            )
            return ServiceBusEndpoint(open_client, subscription.name, destination)
        if isinstance(destination, StorageQueueDestination):
            from localazure.eventgrid.storage_queue_endpoint import (  # noqa: PLC0415 - see above
                StorageQueueEndpoint,
            )

            return StorageQueueEndpoint(self._environment, destination)
        return HttpEndpoint(
            self._session,
            subscription.name,
            destination.url(self._environment),
            schema,
            webhook=isinstance(destination, WebHookDestination),
            batched=destination.max_events_per_batch > 1,
        )

    async def _run_worker(self, running: _Running, endpoint: _Endpoint) -> None:
        subscription = running.worker.subscription
        try:
            if isinstance(endpoint, HttpEndpoint) and endpoint.webhook:
                await keep_doing(
                    f"the handshake of {subscription.name}",
                    functools.partial(self._validate, running, endpoint),
                )
            running.validated.set()
            await keep_doing(f"delivery for {subscription.name}", running.worker.run)
        finally:
            if not isinstance(endpoint, HttpEndpoint):
                await endpoint.close()

    async def _validate(self, running: _Running, endpoint: HttpEndpoint) -> None:
        """Repeat the handshake until it succeeds. Each pair of subscription and URL needs one."""
        subscription = running.worker.subscription
        if self._store.validated_url(subscription.name) == endpoint.url:
            return
        topic = self.resource_id(self._configuration.topics_by_name[subscription.topic])
        server = self._environment.topic_endpoint(subscription.topic).partition("/topics/")[0]
        url = f"{server}/subscriptions/{subscription.name}/validate?code={running.validation_code}"
        retry_seconds = HANDSHAKE_RETRY_SECONDS
        while not running.validated.is_set():
            if await endpoint.perform_handshake(topic, running.validation_code, url):
                break
            if retry_seconds == MAX_HANDSHAKE_RETRY_SECONDS:
                logger.info(
                    "%s: the endpoint has not completed the validation handshake yet",
                    subscription.name,
                )
            await wait_at_most(running.validated, retry_seconds)
            retry_seconds = min(2 * retry_seconds, MAX_HANDSHAKE_RETRY_SECONDS)
        await self._store.set_validated(subscription.name, endpoint.url)

    async def _end(self, name: str) -> None:
        running = self._running.pop(name, None)
        await cancel(running and running.task)
