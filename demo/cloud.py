"""The demo's clients: uploads, the app's HTTP API, the workspace, the dead-letter queue."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.storage.blob.aio import BlobServiceClient

from demo.digits import File
from demo.waiting import eventually

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

LANDING_CONTAINER = "landing"
PIPELINE = "digits"
PREFIX = "digits/"
DIGITS_SUBJECT = f"/blobServices/default/containers/{LANDING_CONTAINER}/blobs/{PREFIX}"
"""The subject of an Event Grid event about a digit begins with it."""
MARKER = "_SUCCESS"
WRITTEN_IN_EACH_ROUND = ("copy-retention/", "reconciliation/", "retention/")
PARALLEL_UPLOADS = 8
PUBLISH_TIMEOUT_SECONDS = 30.0
ENDED = {"succeeded", "rejected", "failed", "cancelled", "superseded", "retrying"}

Run = dict[str, Any]


@dataclass
class Cloud:
    """Open clients of the local services."""

    endpoints: dict[str, Any]
    http: aiohttp.ClientSession
    blobs: BlobServiceClient
    """The account of the landing zone and of Landfall's records."""
    workspace_blobs: BlobServiceClient
    """The account of the workspace's default datastore."""

    @functools.cached_property
    def workspace(self) -> MLClient:
        """The workspace's SDK client. It blocks, and is slow at first: it loads azure.ai.ml."""
        from azure.ai.ml import MLClient  # noqa: PLC0415 - over a second, and needs the environment
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - the same

        place = self.endpoints["azure_ml"]
        return MLClient(
            DefaultAzureCredential(),
            place["subscription_id"],
            place["resource_group"],
            place["workspace"],
        )

    async def upload(
        self,
        files: Sequence[File],
        progress: Callable[[int], None],
        *,
        whole: bool = True,
        folder: str = PREFIX,
    ) -> None:
        """Upload files, several at a time, and then the marker if the batch is complete.

        Args:
            files: the files.
            progress: called with the number of uploaded files.
            whole: whether to upload the marker.
            folder: their folder.
        """
        container = self.blobs.get_container_client(LANDING_CONTAINER)
        waiting = asyncio.Semaphore(PARALLEL_UPLOADS)
        done = 0

        async def upload_one(path: str, content: bytes) -> None:
            nonlocal done
            async with waiting:
                await container.upload_blob(folder + path, content, overwrite=True)
            done += 1
            progress(done)

        async with asyncio.TaskGroup() as group:
            for path, content in files:
                group.create_task(upload_one(path, content))
        if whole:
            await container.upload_blob(folder + MARKER, b"", overwrite=True)

    async def api(self, path: str, **query: str) -> Any:
        """GET something from the app's HTTP API."""
        functions = self.endpoints["functions"]
        async with self.http.get(
            f"{functions['base_url']}/api/{path}",
            params=query,
            headers={"x-functions-key": functions["function_key"]},
        ) as response:
            response.raise_for_status()
            return await response.json()

    async def runs(self, pipeline: str | None = None) -> list[Run]:
        """The runs of a pipeline, or of all, oldest first."""
        asked = {} if pipeline is None else {"pipeline": pipeline}
        return list(reversed((await self.api("runs", **asked))["runs"]))

    async def rollout(self, rollout: str, *states: str) -> dict[str, Any] | None:
        """A rollout, if it is in one of the states."""
        try:
            rollout_status = await self.api(f"rollouts/{rollout}")
        except aiohttp.ClientResponseError:  # the rollout has not begun
            return None
        return rollout_status if rollout_status["state"] in states else None

    async def has_landed(self) -> bool:
        """Whether the landing orchestration of the digits has ended."""
        functions = self.endpoints["functions"]
        url = f"{functions['base_url']}/runtime/webhooks/durabletask/instances/landing-digits"
        headers = {"x-functions-key": functions["system_key"]}
        async with self.http.get(url, headers=headers) as response:
            return (await response.json())["runtimeStatus"] == "Completed"

    async def publish_again(self, events: Sequence[dict[str, Any]], copies: int) -> int:
        """Send shuffled copies of real BlobCreated events; return their number."""
        flood = [event for event in events for _ in range(copies)]
        random.Random(0).shuffle(flood)  # noqa: S311 - no secret
        topic = self.endpoints["event_grid"]["topics"]["storage"]

        async def is_published(batch: list[dict[str, Any]]) -> bool:
            async with self.http.post(
                topic["endpoint"],
                params={"api-version": "2018-01-01"},
                json=batch,
                headers={"aeg-sas-key": topic["key"]},
            ) as response:
                if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
                    return False
                response.raise_for_status()
                return True

        for start in range(0, len(flood), 200):
            batch = flood[start : start + 200]
            await eventually(
                functools.partial(is_published, batch), PUBLISH_TIMEOUT_SECONDS, "Event Grid"
            )
        return len(flood)

    async def subscribe(
        self, name: str, topic: str, url: str, schema: str, subject_begins_with: str = ""
    ) -> None:
        """Have Event Grid deliver a topic's events to the demo."""
        destination = {"endpointType": "WebHook", "properties": {"endpointUrl": url}}
        await self._put_subscription(name, topic, destination, schema, subject_begins_with)

    async def open_second_door(self) -> None:
        """Have Event Grid also deliver the events of the zeros to the function, without the queue.

        Only these: the function takes events one by one, with several storage requests each.
        """
        place = self.endpoints["azure_ml"]
        resource_id = (
            f"/subscriptions/{place['subscription_id']}/resourceGroups/{place['resource_group']}"
            "/providers/Microsoft.Web/sites/landfall/functions/on_blob_event"
        )
        destination = {"endpointType": "AzureFunction", "properties": {"resourceId": resource_id}}
        await self._put_subscription(
            "second-door", "storage", destination, "EventGridSchema", f"{DIGITS_SUBJECT}0/"
        )

    async def _put_subscription(
        self,
        name: str,
        topic: str,
        destination: dict[str, Any],
        schema: str,
        subject_begins_with: str,
    ) -> None:
        access = self.endpoints["event_grid"]
        base = access["endpoint"].rsplit("/topics/", 1)[0]
        body = {
            "name": name,
            "topic": topic,
            "properties": {
                "destination": destination,
                "filter": {"subjectBeginsWith": subject_begins_with},
                "eventDeliverySchema": schema,
            },
        }
        async with self.http.put(
            f"{base}/subscriptions/{name}",
            json=body,
            headers={"aeg-sas-key": access["administration_key"]},
        ) as response:
            response.raise_for_status()

    async def explain(self, path: str) -> dict[str, Any]:
        """The app's explanation of one file."""
        return await self.api("explain", blob=f"{LANDING_CONTAINER}/{PREFIX}{path}")

    async def dead_letters(self) -> list[dict[str, str]]:
        """Reasons and descriptions of the messages in the dead-letter queue of rejected runs."""
        async with (
            ServiceBusClient.from_connection_string(self.endpoints["service_bus"]) as client,
            client.get_queue_receiver(
                "rejected-runs", sub_queue=ServiceBusSubQueue.DEAD_LETTER
            ) as receiver,
        ):
            return [
                {
                    "run": str(message.message_id),
                    "reason": message.dead_letter_reason or "",
                    "description": message.dead_letter_error_description or "",
                }
                for message in await receiver.peek_messages(max_message_count=100)
            ]

    async def all_metrics(self, run: dict[str, Any]) -> dict[str, float]:
        """All metrics of a run's job; the run itself has only those that the gate reads."""
        records = self.blobs.get_container_client("landfall")
        download = await records.download_blob(run["results"])
        return json.loads(await download.readall())["metrics"]

    async def records(self) -> list[tuple[str, str]]:
        """Names and ETags of the app's records: they change when an event, batch or run gets on.

        Without those that reconciliation writes in each of its rounds.
        """
        container = self.blobs.get_container_client("landfall")
        blobs: list[tuple[str, str]] = []
        with contextlib.suppress(ResourceNotFoundError):  # the app makes it with its first record
            blobs += [(blob.name, blob.etag) async for blob in container.list_blobs()]
        return [each for each in blobs if not each[0].startswith(WRITTEN_IN_EACH_ROUND)]

    async def first_checkpoint(self, dataset_version: str) -> str | None:
        """The name of the first checkpoint that training has written to the datastore, if any."""
        container = self.workspace_blobs.get_container_client("azureml-blobstore")
        folder = f"landfall/digits/{dataset_version}/checkpoints/"
        async for name in container.list_blob_names(name_starts_with=folder):
            return name.removeprefix(folder)
        return None


def models(cloud: Cloud, name: str) -> list[dict[str, Any]]:
    """All versions of a model in the workspace, oldest first, with their lineage. It blocks."""
    versions = [
        {
            "name": model.name,
            "version": str(model.version),
            "dataset_version": (model.tags or {}).get("landfall.dataset-version"),
            "job": (model.tags or {}).get("landfall.run"),
            "metrics": {
                key.removeprefix("metrics."): float(value)
                for key, value in (model.properties or {}).items()
                if key.startswith("metrics.")
            },
        }
        for model in cloud.workspace.models.list(name=name)
    ]
    return sorted(versions, key=lambda model: int(model["version"]))


@contextlib.asynccontextmanager
async def connect(endpoints: dict[str, Any]) -> AsyncGenerator[Cloud]:
    """Clients of the services in `endpoints.json`."""
    accounts = endpoints["storage_accounts"]
    async with (
        aiohttp.ClientSession() as http,
        BlobServiceClient.from_connection_string(accounts["landfalldata"]) as blobs,
        BlobServiceClient.from_connection_string(accounts["landfallml"]) as workspace_blobs,
    ):
        yield Cloud(endpoints, http, blobs, workspace_blobs)
