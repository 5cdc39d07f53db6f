"""What tests of the running workspace work with: parts as processes, an SDK client, a topic."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pytest
from azure.storage.blob import BlobServiceClient

from localazure.environment import Environment, Ports
from localazure.part import READY_FD_VARIABLE

T = TypeVar("T")
SDK_WARNINGS = pytest.mark.filterwarnings(
    # azure-ai-ml's schemas use what marshmallow 4 will not have.
    "ignore::marshmallow.warnings.RemovedInMarshmallow4Warning"
)
REPOSITORY = Path(__file__).parents[3]
START_SECONDS = 60.0

AZURE_ML = {
    "datastores": [{"name": "landing", "containerName": "landing"}],
    "quota": {"Standard_Scarce": 1, "Standard_None": 0},
    "provisioningSeconds": 0.2,
}


def until(condition: Callable[[], T | None], *, seconds: float = 40.0) -> T:
    """Poll what another process does, until it is so."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {seconds} s")
        time.sleep(0.2)


def free_ports() -> Ports:
    sockets = {name: socket.socket() for name in Ports.OFFSETS}
    try:
        for entry in sockets.values():
            entry.bind(("127.0.0.1", 0))
        return Ports(**{name: entry.getsockname()[1] for name, entry in sockets.items()})
    finally:
        for entry in sockets.values():
            entry.close()


@dataclass
class Part:
    """One part of localazure as a process of its own."""

    name: str
    state: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ready, told = os.pipe()
        with (self.state / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "localazure.part", self.name, str(self.state)],
                cwd=REPOSITORY,
                env={**os.environ, READY_FD_VARIABLE: str(told)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[told],
            )
        os.close(told)
        with os.fdopen(ready, "rb") as channel:
            answer = channel.readline()
        log_text = (self.state / f"{self.name}.log").read_text()
        assert answer == b"ready\n", f"{self.name} did not start:\n{log_text}"

    def end(self, signum: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(signum)
        self.process.wait(timeout=START_SECONDS)
        assert self.process.stdin is not None
        self.process.stdin.close()


@dataclass
class EventGridTopic:
    """Takes what is published to a topic, as Event Grid's publish endpoint answers it."""

    port: int
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: set[str | None] = field(default_factory=set[str | None])

    @contextmanager
    def open(self) -> Generator[EventGridTopic]:
        topic = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.startswith("/topics/azure-ml/"):
                    topic.events.extend(json.loads(body))
                    topic.keys.add(self.headers["aeg-sas-key"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@dataclass
class Local:
    """Everything that a test needs."""

    environment: Environment
    ml: Any
    """The MLClient; its entities are typed as wide unions, which say little here."""
    blobs: BlobServiceClient
    workspace: Part
    storage: Part
    topic: EventGridTopic

    def read_blob(self, container: str, path: str) -> bytes:
        return self.blobs.get_blob_client(container, path).download_blob().readall()

    def list_blobs(self, container: str, prefix: str) -> list[str]:
        found = self.blobs.get_container_client(container).list_blobs(name_starts_with=prefix)
        return sorted(blob.name.removeprefix(prefix) for blob in found)

    def status(self, job: str) -> str:
        status = self.ml.jobs.get(job).status
        assert status is not None
        return status

    def wait_for(self, job: str, *statuses: str) -> str:
        def reached() -> str | None:
            status = self.status(job)
            ended = status in {"Completed", "Failed", "Canceled"}
            assert status in statuses or not ended, f"{job} is {status}: {self.log(job)}"
            return status if status in statuses else None

        return until(reached)

    def log(self, job: str) -> str:
        folder = f"ExperimentRun/dcid.{job}/user_logs/"
        names = self.list_blobs("azureml", folder)
        return "\n".join(self.read_blob("azureml", folder + name).decode() for name in names)
