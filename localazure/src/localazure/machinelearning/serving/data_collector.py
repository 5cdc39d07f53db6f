"""The data collector: stores requests and responses of deployments as JSON lines.

A deployment's `data_collector` names its collections. `request` and `response` are the bodies of
scoring requests and responses; a script logs other collections with `azureml-ai-monitoring`, which
sends them to a sidecar process: here, to a separate port for each deployment.

https://learn.microsoft.com/azure/machine-learning/how-to-collect-production-data
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from localazure.json_text import parse_json
from localazure.machinelearning.addresses import parse_asset
from localazure.machinelearning.configuration import DEFAULT_DATASTORE
from localazure.machinelearning.data.blobs import BlobStore
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.jobs.resolution import locate
from localazure.machinelearning.serving.collected_lines import CollectedLines
from localazure.machinelearning.serving.store import Deployment
from localazure.machinelearning.workspace import Workspace
from localazure.processes.pauses import wait_at_most
from localazure.processes.ports import LOOPBACK, free_ports
from localazure.runtime.http_server import listening, runner_of

FOLDER = "modelDataCollector"
REQUEST, RESPONSE = "request", "response"
LOG_PATH = "/modeldata/log"
FLUSH_SECONDS = 1.0
# Azure stores a larger payload in a file of its own; localazure drops it.
LARGEST_PAYLOAD_BYTES = 4 * 1024 * 1024
_TYPE = "azureml.inference."
_FOLDER_BY_ROLLING_RATE = {
    "minute": "%Y/%m/%d/%H/%M",
    "hour": "%Y/%m/%d/%H",
    "day": "%Y/%m/%d",
    "month": "%Y/%m",
    "year": "%Y",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CollectorSettings:
    """The enabled collections of a deployment."""

    sampling_rates: Mapping[str, float]
    """Enabled collection → the fraction of its payloads that is stored, at most 1."""
    data_ids: Mapping[str, str]
    """Collection → the data asset with its folder. The SDK registers one asset per collection."""
    rolling_rate: str
    """The interval between new folders: a key of `_FOLDER_BY_ROLLING_RATE`."""

    def folder_at(self, moment: datetime) -> str:
        """The folder for data of a moment, relative to the collection's folder."""
        return moment.strftime(_FOLDER_BY_ROLLING_RATE[self.rolling_rate])


def collector_settings(properties: Mapping[str, Any]) -> CollectorSettings:
    """Parse `dataCollector` in a deployment's properties; without it, nothing is collected.

    Raises:
        ArmError: 400, the rolling rate is not known.
    """
    section: Mapping[str, Any] = properties.get("dataCollector") or {}
    rolling_rate = str(section.get("rollingRate") or "hour").lower()
    if rolling_rate not in _FOLDER_BY_ROLLING_RATE:
        raise invalid(f"dataCollector.rollingRate {rolling_rate!r} is not known")
    collections: Mapping[str, Mapping[str, Any]] = section.get("collections") or {}
    enabled = {
        name: collection
        for name, collection in collections.items()
        if str(collection.get("dataCollectionMode")).lower() == "enabled"
    }
    rates = {name: each.get("samplingRate") for name, each in enabled.items()}
    return CollectorSettings(
        {name: 1.0 if rate is None else float(rate) for name, rate in rates.items()},
        {name: each["dataId"] for name, each in enabled.items() if each.get("dataId")},
        rolling_rate,
    )


@dataclass
class _Listener:
    """A port that receives the data that one deployment's script collects."""

    port: int
    deployment: Deployment
    """The newest generation of the deployment."""
    stack: contextlib.AsyncExitStack


class DataCollector:
    """Collects data of all deployments and appends it to blobs. An async context manager.

    A crash of the process loses the data of the last second.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._store = BlobStore(workspace.environment)
        self._lines = CollectedLines(self._store)
        self._listeners: dict[tuple[str, str], _Listener] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._flushing = asyncio.create_task(self._flush_often())
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners.values():
            await listener.stack.aclose()
        self._is_closing.set()
        if self._flushing is not None:
            await self._flushing
        if lost := self._lines.waiting_bytes():
            logger.warning("%d bytes of collected data are lost: storage is unavailable", lost)
        self._store.close()

    async def environment_of(self, deployment: Deployment, config: Path) -> dict[str, str]:
        """The environment variables with which `azureml-ai-monitoring` finds its configuration.

        Write the configuration to a file. Without collections, there are no variables.
        """
        rates = collector_settings(deployment.properties).sampling_rates
        if not rates:
            return {}
        collections = {
            name: {"enabled": True, "sampleRatePercentage": rate * 100}
            for name, rate in rates.items()
        }
        config.write_text(json.dumps({"collections": collections}))
        return {
            "AZUREML_MDC_CONFIG_PATH": str(config),
            "AZUREML_MDC_HOST": LOOPBACK,
            "AZUREML_MDC_PORT": str(await self._listen(deployment)),
        }

    def collect_payload(
        self, deployment: Deployment, path: str, body: bytes, answer: bytes, *, draw: float
    ) -> None:
        """Store a scoring request and its response, as far as they are JSON and collected.

        `draw`, a random number in [0, 1), decides whether a payload is sampled.
        """
        rates = collector_settings(deployment.properties).sampling_rates
        correlation = str(uuid.uuid4())
        payloads = {REQUEST: (body, {"path": path, "method": "POST"}), RESPONSE: (answer, {})}
        for collection, (payload, more) in payloads.items():
            if draw >= rates.get(collection, 0.0):
                continue
            moment = datetime.fromtimestamp(self._workspace.clock(), UTC)
            event = {"id": str(uuid.uuid4()), **more, "correlationid": correlation}
            self._append(deployment, collection, moment, payload, event)

    async def forget(self, deployment: Deployment) -> None:
        """Close the port of a deleted deployment."""
        listener = self._listeners.pop(deployment.key, None)
        if listener is not None:
            await listener.stack.aclose()

    async def _listen(self, deployment: Deployment) -> int:
        """Open the port of a deployment's script, if it is not open, and return it."""
        listener = self._listeners.get(deployment.key)
        if listener is None:
            listener = _Listener(free_ports(1)[0], deployment, contextlib.AsyncExitStack())
            self._listeners[deployment.key] = listener
            application = web.Application(client_max_size=LARGEST_PAYLOAD_BYTES)
            application.router.add_post(LOG_PATH, partial(self._log, listener))
            try:
                await listener.stack.enter_async_context(
                    listening(runner_of(application), {listener.port: None})
                )
            except BaseException:  # another process has taken the port
                del self._listeners[deployment.key]
                raise
        listener.deployment = deployment
        return listener.port

    async def _log(self, listener: _Listener, request: web.Request) -> web.Response:
        """Store data of a script, which `azureml-ai-monitoring` sends with these headers."""
        headers = request.headers
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType
        collection = headers.get("ce-type", "").removeprefix(_TYPE)
        try:
            moment = datetime.fromtimestamp(int(headers.get("ce-time", "")), UTC)
        except ValueError as error:
            raise web.HTTPBadRequest(text="ce-time: epoch seconds") from error
        event = {
            "id": headers.get("trace-id"),
            "correlationid": headers.get("ce-x-request-id"),
            "modelversion": headers.get("ce-model-version"),
            "collectdatatype": headers.get("ce-collect-data-type"),
            "agent": headers.get("ce-agent"),
        }
        self._append(listener.deployment, collection, moment, await request.read(), event)
        return web.Response()

    def _append(
        self,
        deployment: Deployment,
        collection: str,
        moment: datetime,
        payload: bytes,
        event: Mapping[str, Any],
    ) -> None:
        """Queue a line. Drop a payload that is not JSON or that is too large."""
        try:
            data = parse_json(payload) if len(payload) <= LARGEST_PAYLOAD_BYTES else None
        except ValueError:
            data = None
        if data is None:
            logger.info("deployment %s/%s: a payload was not collected", *deployment.key)
            return
        source = f"onlineEndpoints/{deployment.endpoint}/deployments/{deployment.name}"
        line = {
            "specversion": "1.0",
            "source": f"{self._workspace.id}/{source}",
            "type": _TYPE + collection,
            "datacontenttype": "application/json",
            "time": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "data": data,
            "contentrange": f"bytes 0-{len(payload) - 1}/{len(payload)}",
            "xrequestid": event["correlationid"],
            **event,
        }
        settings = collector_settings(deployment.properties)
        data_id = settings.data_ids.get(collection)
        if data_id is None:
            root = self._workspace.configuration.datastores[DEFAULT_DATASTORE]
            folder = root.child(f"{FOLDER}/{deployment.endpoint}/{deployment.name}/{collection}")
        else:
            try:
                folder = locate(self._workspace.database.read, parse_asset(data_id, kind="data"))
            except ArmError as error:  # the data asset does not exist: the client gets its score
                logger.warning(
                    "deployment %s/%s: collected data is dropped: %s", *deployment.key, error
                )
                return
        folder = folder.child(settings.folder_at(moment))
        self._lines.add(deployment.key, folder, json.dumps(line).encode() + b"\n")

    async def _flush_often(self) -> None:
        # A cancelled flush would not know how much its thread has written.
        while not self._is_closing.is_set():
            await wait_at_most(self._is_closing, FLUSH_SECONDS)
            await self._lines.flush()
