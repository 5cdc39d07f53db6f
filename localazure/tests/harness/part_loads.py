"""What clients do with each part, and whether its work in the background is done."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
from aiohttp import web
from azure.core.credentials import AzureKeyCredential
from azure.eventgrid import EventGridEvent
from azure.eventgrid.aio import EventGridPublisherClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.storage.blob.aio import ContainerClient
from azure.storage.queue.aio import QueueClient

from harness.local_workspace import ENVIRONMENT
from harness.waiting import eventually
from localazure.machinelearning.addresses import workspace_id
from localazure.processes.ports import free_ports
from localazure.runtime.environment import STORAGE_ACCOUNT, STORAGE_KEY, Environment
from localazure.runtime.http_server import listening, runner_of
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import Endpoint, Request, Service

APP = """
from datetime import timedelta
import azure.durable_functions as df
import azure.functions as func

app = df.DFApp()

@app.route("start/{name}")
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client) -> func.HttpResponse:
    await client.start_new("sleeper", instance_id=req.route_params["name"])
    return func.HttpResponse(status_code=202)

@app.orchestration_trigger(context_name="context")
def sleeper(context):
    yield context.create_timer(context.current_utc_datetime + timedelta(seconds=0.3))
    return (yield context.call_activity("work", 1))

@app.activity_trigger(input_name="number")
def work(number: int) -> int:
    return number

@app.timer_trigger(arg_name="timer", schedule="* * * * * *")
def tick(timer: func.TimerRequest) -> None:
    with open(__file__.replace("function_app.py", "ticks"), "a") as ticks:
        ticks.write("tick ")
"""


class Posted:
    """A topic or a webhook. It refuses every second request, so that some events always wait."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._is_refused = itertools.cycle((True, False))

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.headers.get("aeg-event-type") == "SubscriptionValidation":
            code = body[0]["data"]["validationCode"]
            return web.json_response({"validationResponse": code})
        if next(self._is_refused):
            return web.Response(status=500)
        self.events += body
        return web.Response()

    def listening(self, port: int) -> contextlib.AbstractAsyncContextManager[None]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        return listening(runner_of(application), {port: None})


class Load(ABC):
    """What clients of one part do."""

    part: ClassVar[str]
    failing: ClassVar[tuple[str, ...]]
    """What its log says of all work in the background that fails."""
    others: ClassVar[tuple[str, ...]] = ()
    """Parts that must run, too. They are not broken."""
    writers = 3
    pause_seconds = 0.01
    """Of each writer, after an acknowledged write."""
    enough = 20
    """Writes before and after each fault."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    @abstractmethod
    def configure(self, folder: Path) -> None:
        """Write the files of the part, and of the app, into a folder."""

    @abstractmethod
    def connected(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold what lasts longer than one run of the part."""

    @abstractmethod
    async def write(self, name: str) -> None:
        """Return once the part has acknowledged the write."""

    async def is_busy(self) -> bool:
        """Whether work in the background is under way, which the next fault hits."""
        return True

    @abstractmethod
    async def done(self) -> set[str]:
        """The names that the part holds, and whose work in the background is done."""


class Storage(Load):
    """A blob with its event, a message of a queue, and a row of a table."""

    part = "storage"
    failing = ()  # the position in the journal can be noted on a full disk, too

    def configure(self, folder: Path) -> None:
        (folder / "storage.json").write_text('{"containers": ["landing"]}')

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        text = self.environment.storage_connection_string()
        self._topic = Posted()
        async with (
            ContainerClient.from_connection_string(text, "landing", retry_total=0) as self._blobs,
            QueueClient.from_connection_string(text, "tasks", retry_total=0) as self._queue,
            aiohttp.ClientSession() as http,
            self._topic.listening(self.environment.ports.event_grid),
        ):
            self._taken: set[str] = set()
            await self._queue.create_queue()
            url = f"http://127.0.0.1:{self.environment.ports.table}/{STORAGE_ACCOUNT}"
            table = Endpoint(
                url=url, service=Service.TABLE, account=STORAGE_ACCOUNT, key=STORAGE_KEY
            )
            self._tables = StorageClient(http, table)
            await self._insert("Tables", {"TableName": "rows"})
            yield

    async def _insert(self, path: str, row: dict[str, str]) -> None:
        sent = {"content-type": "application/json", "accept": "application/json"}
        await self._tables.send(Request("POST", path, {}, sent, json.dumps(row).encode()))

    async def write(self, name: str) -> None:
        await self._blobs.upload_blob(name, name.encode() * 1000)
        await self._queue.send_message(name)
        await self._insert("rows", {"PartitionKey": "p", "RowKey": name})

    async def done(self) -> set[str]:
        async for message in self._queue.receive_messages(messages_per_page=32):
            self._taken.add(message.content)
            await self._queue.delete_message(message)
        announced = {each["subject"].partition("/blobs/")[2] for each in self._topic.events}
        names = {name async for name in self._blobs.list_blob_names()}
        sent = {"accept": "application/json;odata=nometadata"}
        answer = await self._tables.send(Request("GET", "rows()", headers=sent))
        rows = {row["RowKey"] for row in json.loads(answer.body)["value"]}
        return names & announced & self._taken & rows


class ServiceBus(Load):
    """A message that is available at once, and one that is due later and is forwarded then."""

    part = "servicebus"
    failing = ("timed transitions could not be written",)
    writers = 1

    def configure(self, folder: Path) -> None:
        queues = [{"Name": "now"}, {"Name": "onward", "Properties": {"ForwardTo": "later"}}]
        namespace = {"Name": "n", "Sku": "Premium", "Queues": [*queues, {"Name": "later"}]}
        document = {"UserConfig": {"Namespaces": [namespace]}}
        (folder / "Config.json").write_text(json.dumps(document))

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        self._taken: dict[str, set[str]] = {"now": set(), "later": set()}
        text = self.environment.service_bus_connection_string
        async with (
            ServiceBusClient.from_connection_string(text, retry_total=0) as client,
            client.get_queue_sender("now") as self._now,
            client.get_queue_sender("onward") as self._onward,
            client.get_queue_receiver("now") as now,
            client.get_queue_receiver("later") as later,
        ):
            self._receivers = {"now": now, "later": later}
            yield

    async def write(self, name: str) -> None:
        await self._now.send_messages(ServiceBusMessage(name))
        due = datetime.now(UTC) + timedelta(seconds=0.3)
        await self._onward.schedule_messages(ServiceBusMessage(name), due)

    async def done(self) -> set[str]:
        for queue, receiver in self._receivers.items():
            for message in await receiver.receive_messages(100, max_wait_time=0.5):
                self._taken[queue].add(str(message))
                await receiver.complete_message(message)
        return self._taken["now"] & self._taken["later"]


class EventGrid(Load):
    """An event that is delivered to a webhook."""

    part = "eventgrid"
    failing = ("delivery for hook failed",)

    def configure(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        destination = {
            "endpointType": "WebHook",
            "properties": {"endpointUrl": f"http://127.0.0.1:{self._port}/hook"},
        }
        subscription = {
            "name": "hook",
            "topic": "azure-ml",
            "properties": {"destination": destination},
        }
        document = {"eventSubscriptions": [subscription], "retryScheduleSeconds": [0.1]}
        (folder / "event-grid.json").write_text(json.dumps(document))

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        self._hook = Posted()
        endpoint = self.environment.topic_endpoint("azure-ml")
        key = AzureKeyCredential(self.environment.event_grid_keys("azure-ml")[0])
        async with (
            EventGridPublisherClient(endpoint, key, retry_total=0) as self._client,
            self._hook.listening(self._port),
        ):
            yield

    async def write(self, name: str) -> None:
        await self._client.send(EventGridEvent(name, "T", {}, "1"))

    async def done(self) -> set[str]:
        return {event["subject"] for event in self._hook.events}


class Functions(Load):
    """An orchestration with a timer and an activity; and a timer trigger that goes on."""

    part = "functions"
    failing = ("the task hub cannot be written to",)

    def configure(self, folder: Path) -> None:
        (folder / "host.json").write_text('{"version": "2.0"}')
        (folder / "function_app.py").write_text(APP)
        self._ticks = folder / "ticks"
        self._ticks.touch()

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        async with aiohttp.ClientSession(self.environment.functions_url) as self._http:
            yield

    async def write(self, name: str) -> None:
        keys = {"x-functions-key": self.environment.keys.functions_host}
        async with self._http.post(f"/api/start/{name}", headers=keys) as answer:
            answer.raise_for_status()

    async def done(self) -> set[str]:
        ticks = self._ticks.stat().st_size
        await eventually(lambda: self._ticks.stat().st_size > ticks)
        url = "/runtime/webhooks/durabletask/instances"
        code = {
            "code": self.environment.keys.functions_system,
            "runtimeStatus": "Completed",
            "top": "9999",
        }
        async with self._http.get(url, params=code) as answer:
            return {each["instanceId"] for each in await answer.json()}


class MachineLearning(Load):
    """A sweep, whose trial is scheduled, and its metrics read; and a job that runs for 1.5 s."""

    part = "machinelearning"
    failing = ("a pass over the jobs failed", "writing the state of job")
    others = ("storage",)
    writers = 1
    pause_seconds = 1.5  # a job is several processes: more would only wait for one another
    enough = 1

    def configure(self, folder: Path) -> None:
        """Nothing is declared."""

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        self._topic = Posted()
        environment = self.environment
        url = f"http://127.0.0.1:{environment.ports.identity}/msi/token"
        asked = {"api-version": "2019-08-01", "resource": environment.azure_ml_url}
        sent = {"X-IDENTITY-HEADER": environment.keys.identity_header}
        tls = ssl.create_default_context(cafile=str(environment.ca))
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as self._http,
            self._topic.listening(environment.ports.event_grid),
        ):
            async with self._http.get(url, params=asked, headers=sent) as answer:
                token = (await answer.json())["access_token"]
            self._http.headers["Authorization"] = f"Bearer {token}"
            yield

    async def _ask(self, method: str, path: str, properties: Any = None) -> Any:
        url = f"{self.environment.azure_ml_url}{workspace_id(self.environment)}/{path}"
        body = None if properties is None else {"properties": properties}
        version = {"api-version": "2024-10-01"}
        while True:
            async with self._http.request(method, url, params=version, json=body) as answer:
                if answer.ok:
                    return await answer.json()
                if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                    raise OSError(await answer.text())
            await asyncio.sleep(float(answer.headers["Retry-After"]))

    async def write(self, name: str) -> None:
        trial = {"command": "sleep 0.2", "environmentId": ENVIRONMENT.removeprefix("azureml:")}
        await self._ask(
            "PUT",
            f"jobs/{name}",
            {
                "jobType": "Sweep",
                "trial": trial,
                "samplingAlgorithm": {"samplingAlgorithmType": "Grid"},
                "searchSpace": {"x": ["choice", [[1]]]},
                "objective": {"goal": "Maximize", "primaryMetric": "accuracy"},
                "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 1},
            },
        )
        job = {**trial, "command": "sleep 1.5", "computeId": "serverless"}
        await self._ask("PUT", f"jobs/{name}-job", {"jobType": "Command", **job})

    async def _statuses(self) -> dict[str, str]:
        await asyncio.sleep(0.3)  # the rate of requests is limited, as on Azure
        found = (await self._ask("GET", "jobs"))["value"]
        status = {each["name"]: each["properties"]["status"] for each in found}
        assert not {"Failed", "Canceled"} & set(status.values()), status
        return status

    async def is_busy(self) -> bool:
        statuses = await self._statuses()  # a sweep is Running without a process
        return any("-" in name and status == "Running" for name, status in statuses.items())

    async def done(self) -> set[str]:
        """A sweep is completed when its trial is."""
        completed = {name for name, at in (await self._statuses()).items() if at == "Completed"}
        return completed & {name.partition("-")[0] for name in completed if "-" in name}


LOADS = (Storage, ServiceBus, EventGrid, Functions, MachineLearning)
