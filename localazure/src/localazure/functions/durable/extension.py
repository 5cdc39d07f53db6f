"""The Durable Functions extension for the Functions host: composes store, engine and HTTP API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiohttp import web

from localazure.functions.durable.api.http_api import HttpApi, OpensWebhook
from localazure.functions.durable.api.links import Links
from localazure.functions.durable.runtime.dispatcher import Dispatcher
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.hub_share import HubShare
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.durable.store.shared_store import SharedStore, Sharing
from localazure.functions.durable.store.store import Store
from localazure.runtime.environment import LOOPBACK


class DurableExtension:
    """One task hub of one function app.

    Attributes:
        hub: the operations of clients.

    Args:
        database_path: the task hub's SQLite file, created if missing.
        base_url: the base URL of `routes()`, without a trailing slash.
        system_key: the key in the management URLs of instances.
        opens_webhook: returns whether a key gives access to the management API.
        settings: those of the task hub.
        worker: runs the functions.
        sharing: how this host shares the task hub with others; None: it is the only host.
    """

    def __init__(
        self,
        *,
        database_path: Path,
        base_url: str,
        system_key: str,
        opens_webhook: OpensWebhook,
        settings: HubSettings,
        worker: Worker,
        sharing: Sharing | None = None,
    ) -> None:
        partition_count = settings.options.storage_provider.partition_count
        shared = sharing and SharedStore(database_path, sharing, partition_count, settings.clock)
        self._store = shared or Store(database_path)
        self._dispatcher = Dispatcher(settings, self._store, worker)
        self._share = shared and HubShare(shared, self._dispatcher)
        self._links = Links(
            base_url=base_url, hub_name=settings.options.hub_name, system_key=system_key
        )
        self.hub = TaskHub(settings, self._store, self._dispatcher)
        self._api = HttpApi(hub=self.hub, links=self._links, opens_webhook=opens_webhook)

    def routes(self) -> list[web.RouteDef]:
        """The client's RPC (`/durabletask`) and the management API (`/runtime/webhooks/…`)."""
        return HttpApi.routes(lambda _: self._api)

    def client_binding(self) -> str:
        """The JSON value of a durableClient input binding."""
        return self._links.client_binding

    def use_grpc(self, port: int) -> None:
        """Have clients speak gRPC, to a service on this port, in place of HTTP."""
        options = self.hub.settings.options
        self._links = replace(
            self._links,
            grpc={
                "rpcBaseUrl": f"http://{LOOPBACK}:{port}",
                "maxGrpcMessageSizeInBytes": options.max_grpc_message_size_in_bytes,
                "grpcHttpClientTimeout": options.grpc_http_client_timeout,
            },
        )

    def fire_timers(self) -> None:
        """Fire the timers that are due; for tests that move the clock."""
        self._dispatcher.fire_timers()

    async def start(self) -> None:
        """Continue all unfinished work."""
        if self._share is None:
            self._dispatcher.start()
        else:
            await self._share.start()

    async def stop(self, drain_seconds: float) -> None:
        """Start no more functions, wait up to `drain_seconds` for running ones, close the store.

        Functions that are still running then are canceled; they run again after the next start.
        """
        await (self._share or self._dispatcher).stop(drain_seconds)
        self._store.close()
