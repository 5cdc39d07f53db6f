"""The Durable Functions extension for the Functions host: composes store, engine and HTTP API."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from localazure.functions.durable.api.http_api import HttpApi, OpensWebhook
from localazure.functions.durable.api.links import Links
from localazure.functions.durable.runtime.activity_call import ActivityCall
from localazure.functions.durable.runtime.dispatcher import Dispatcher
from localazure.functions.durable.runtime.entities import EntityFunctions
from localazure.functions.durable.runtime.episode_runner import EpisodeRunner
from localazure.functions.durable.runtime.hosted_app import HostedApp
from localazure.functions.durable.runtime.hub_share import HubShare
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.durable.store.shared_store import SharedStore, Sharing
from localazure.functions.durable.store.store import Store


class AppWorker(Worker):
    """Runs the functions of an app in the host's process."""

    def __init__(self, app: HostedApp) -> None:
        self.run_episode = EpisodeRunner(app).run
        self.run_activity = ActivityCall(app).run
        self.run_operations = EntityFunctions(app).run

    def interrupt(self, instance_id: str) -> None:
        """Do nothing: an orchestrator does not wait."""


class DurableExtension:
    """One task hub of one function app.

    Args:
        database_path: the task hub's SQLite file, created if missing.
        base_url: the base URL of `routes()`, without a trailing slash.
        system_key: the key in the management URLs of instances.
        opens_webhook: returns whether a key gives access to the management API.
        app: the functions.
        sharing: how this host shares the task hub with others; None: it is the only host.
    """

    def __init__(
        self,
        *,
        database_path: Path,
        base_url: str,
        system_key: str,
        opens_webhook: OpensWebhook,
        app: HostedApp,
        sharing: Sharing | None = None,
    ) -> None:
        partition_count = app.options.storage_provider.partition_count
        shared = sharing and SharedStore(database_path, sharing, partition_count, app.clock)
        self._store = shared or Store(database_path)
        self._dispatcher = Dispatcher(app, self._store, AppWorker(app))
        self._share = shared and HubShare(shared, self._dispatcher)
        self._links = Links(base_url=base_url, hub_name=app.options.hub_name, system_key=system_key)
        self._api = HttpApi(
            hub=TaskHub(app, self._store, self._dispatcher),
            links=self._links,
            opens_webhook=opens_webhook,
        )

    def routes(self) -> list[web.RouteDef]:
        """The client's RPC (`/durabletask`) and the management API (`/runtime/webhooks/…`)."""
        return self._api.routes()

    def client_binding(self) -> str:
        """The JSON value of a durableClient input binding."""
        return self._links.client_binding

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
