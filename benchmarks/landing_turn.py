"""python -m benchmarks.landing_turn TASK URL …: one turn of `benchmarks.landing`, in a process.

Prints what it measured as one JSON object.
"""

from __future__ import annotations

import http.client
import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree as ET

from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.blob import BlobServiceClient, ContainerClient

from handlers.platform.activity_adapter import functions as activity_functions
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from orchestrations.contracts.datasets import Dataset
from orchestrations.landing.freezing import LANES_AT_ONCE, freeze, freezing
from tests.unit.orchestrations.examples import PIPELINE, deploy, with_rules

ZONE_KEY = "bG9jYWw="
_STARTED = time.process_time()  # after the imports


def freeze_zone(zone: str, records: str, container: str) -> dict[str, float]:
    """Freeze the zone by the real orchestrator and activities; the records are at Azurite."""
    with tempfile.TemporaryDirectory() as pipelines:
        deploy(Path(pipelines), with_rules(PIPELINE, source={"prefix": "train/"}))
        clients = Clients(Settings({"PIPELINES_FOLDER": pipelines}))
        vars(clients).update(
            blobs=BlobServiceClient(zone, AzureNamedKeyCredential("local", ZONE_KEY)),
            records=ContainerClient.from_connection_string(records, container),
        )
        driver = _Driver(clients)
        began = time.monotonic()
        context: Any = driver  # as much of one as `freeze` uses
        dataset, _ = driver.run(freeze(context, PIPELINE.name))
        assert isinstance(dataset, Dataset)
        seconds = time.monotonic() - began
    return {
        **_cost(dataset.blobs),
        "seconds": seconds,
        "longest activity s": max(driver.seconds),
        "longest payload KiB": max(driver.payloads) / 1024,
        "history events": 2.0 * len(driver.seconds),
    }


def fetch_pages(zone: str) -> dict[str, float]:
    """Fetch all pages."""
    blobs = sum(page.count(b"<Blob>") for page in _pages(zone))
    return _cost(blobs)


def parse_pages(zone: str) -> dict[str, float]:
    """Fetch all pages and parse them into trees, which are discarded."""
    # The XML is trusted: it is our server's.
    blobs = sum(len(ET.fromstring(page).findall("Blobs/Blob")) for page in _pages(zone))  # noqa: S314
    return _cost(blobs)


def list_with_sdk(zone: str, blobs: str) -> dict[str, float]:
    """The first blobs of the zone as the SDK lists them."""
    service = BlobServiceClient(zone, AzureNamedKeyCredential("local", ZONE_KEY))
    listed = service.get_container_client("landing").list_blobs(name_starts_with="train/")
    return _cost(len(list(itertools.islice(listed, int(blobs)))))


def _cost(blobs: int) -> dict[str, float]:
    cpu_seconds = time.process_time() - _STARTED
    return {
        "CPU s": cpu_seconds,
        "CPU µs a blob": cpu_seconds / blobs * 1e6,
        "peak RSS MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _pages(zone: str) -> Iterator[bytes]:
    url = urlsplit(zone)
    connection = http.client.HTTPConnection(url.netloc)
    marker = ""
    while True:
        asked = {"restype": "container", "comp": "list", "prefix": "train/", "marker": marker}
        given = {key: value for key, value in asked.items() if value}
        connection.request("GET", f"{url.path}/landing?{urlencode(given)}")
        page = connection.getresponse().read()
        yield page
        _, found, rest = page[-1000:].partition(b"<NextMarker>")
        if not found:
            return
        marker = rest.partition(b"<")[0].decode()


@dataclass
class _Task:
    """A task of the SDK."""

    future: Future[Any]

    @property
    def is_completed(self) -> bool:
        return self.future.done()

    @property
    def result(self) -> Any:
        return self.future.exception() or self.future.result()


@dataclass
class _Driver:
    """The parts of a durable context that `freeze` uses; activities run in four threads."""

    clients: Clients
    instance_id: str = "landing-benchmark"
    seconds: list[float] = field(default_factory=list[float])
    payloads: list[int] = field(default_factory=list[int])
    inputs: list[Any] = field(default_factory=list[Any])

    def __post_init__(self) -> None:
        self.current_utc_datetime = datetime.now(UTC)
        self._functions = {
            function.__name__: function for function in activity_functions(self.clients)
        }
        self._pool = ThreadPoolExecutor(LANES_AT_ONCE)

    def call_activity(self, name: str, given: Any) -> _Task:
        return _Task(self._pool.submit(self._call, name, given))

    def call_sub_orchestrator(self, name: str, given: Any, _: str) -> _Task:
        assert name == freezing.__name__
        self.inputs.append(given)
        future: Future[Any] = Future()
        outcome = None
        while self.inputs:  # a generation each
            context: Any = self
            outcome = self.run(freezing(context))
        future.set_result(outcome)
        return _Task(future)

    def continue_as_new(self, given: Any) -> None:
        self.inputs.append(given)

    def get_input(self) -> Any:
        return self.inputs.pop()

    def task_any(self, tasks: list[_Task]) -> list[_Task]:
        return tasks

    def run(self, generator: Any) -> Any:
        """Run a generator to its end; returns what it returns."""
        answer = None
        while True:
            try:
                task: _Task | list[_Task] = generator.send(answer)
            except StopIteration as end:
                return end.value
            tasks = [task] if isinstance(task, _Task) else task
            wait([each.future for each in tasks], return_when=FIRST_COMPLETED)
            answer = task.result if isinstance(task, _Task) else None

    def _call(self, name: str, given: Any) -> Any:
        began = time.monotonic()
        outcome = self._functions[name](given)
        self.seconds.append(time.monotonic() - began)
        if len(self.seconds) % 20 == 0:
            sys.stderr.write(f"  {len(self.seconds)} activities, {sum(self.seconds):.0f} s\n")
        self.payloads += [len(json.dumps(given)), len(json.dumps(outcome))]
        return outcome


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "freeze": freeze_zone,
    "parse": parse_pages,
    "fetch": fetch_pages,
    "sdk": list_with_sdk,
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])) + "\n")
