"""Runs a scheduler: its gRPC server, from the start of the process to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb
import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc
from google.protobuf.empty_pb2 import Empty

from localazure.errors import StartError
from localazure.functions import logs
from localazure.processes.interruption import end_on_signals
from localazure.processes.state_folder import make_state_folder
from localazure.runtime.environment import LOOPBACK
from localazure.scheduler.calls import DEFAULT_HUB, hub_name
from localazure.scheduler.client_service import ClientService
from localazure.scheduler.entity_service import EntityService
from localazure.scheduler.hubs import Hubs
from localazure.scheduler.worker_service import WorkerService

# gRPC refuses messages over 4 MB by default, and a history may be longer.
_MOST_BYTES: Final = 256 * 1024 * 1024

_OPTIONS: Final = [
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_send_message_length", _MOST_BYTES),
    ("grpc.so_reuseport", 0),  # a second scheduler on the port must fail
    # A worker that does not answer a ping in time has lost its items.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


class _Service(  # pyright: ignore[reportIncompatibleMethodOverride] - the stubs have no types
    ClientService, EntityService, WorkerService, stubs.TaskHubSidecarServiceServicer
):
    """The whole service."""

    def __init__(self, hubs: Hubs) -> None:
        self.hubs = hubs

    async def Hello(self, request: Empty, context: Any) -> Empty:
        """Answer a client that looks whether the scheduler is there."""
        del request, context
        return Empty()

    async def CreateTaskHub(
        self, request: pb.CreateTaskHubRequest, context: Any
    ) -> pb.CreateTaskHubResponse:
        """Create a task hub, anew if asked to. Naming one creates it, too."""
        if request.recreateIfExists:
            await self.hubs.delete(hub_name(context))
        self.hubs.get(hub_name(context))
        return pb.CreateTaskHubResponse()

    async def DeleteTaskHub(
        self, request: pb.DeleteTaskHubRequest, context: Any
    ) -> pb.DeleteTaskHubResponse:
        """Delete a task hub with all its instances."""
        del request
        await self.hubs.delete(hub_name(context))
        return pb.DeleteTaskHubResponse()


@contextlib.asynccontextmanager
async def running(folder: Path, port: int) -> AsyncGenerator[int]:
    """Run a scheduler; yields its port.

    Args:
        folder: for the files of task hubs, created if missing.
        port: TCP port on the loopback interface; 0: a free one.

    Raises:
        StartError: the port is taken.
    """
    hubs = Hubs(folder)
    server: Any = grpc.aio.server(options=_OPTIONS)
    stubs.add_TaskHubSidecarServiceServicer_to_server(_Service(hubs), server)
    try:
        bound_port: int = server.add_insecure_port(f"{LOOPBACK}:{port}")
    except RuntimeError:
        raise StartError(
            f"port {port} is in use: end what listens there, or take another with --port"
        ) from None
    await server.start()
    try:
        yield bound_port
    finally:
        await server.stop(0)
        await hubs.close()


async def run(state: Path, port: int) -> None:
    """Run a scheduler until SIGTERM or SIGINT.

    Raises:
        StartError: the port is taken, or the state folder cannot be written.
    """
    logging.basicConfig(level=logging.INFO)
    make_state_folder(state)
    stop = asyncio.Event()
    end_on_signals(stop.set)
    with logs.configured({}):
        async with running(state / "scheduler", port) as bound_port:
            address = f"http://{LOOPBACK}:{bound_port}"
            sys.stdout.write(
                f"Durable Task Scheduler: {address}\n"
                f"  Endpoint={address};TaskHub={DEFAULT_HUB};Authentication=None\n"
                "ready; Ctrl-C ends it\n"
            )
            sys.stdout.flush()
            await stop.wait()
