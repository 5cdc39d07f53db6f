"""Runs a scheduler: its gRPC server and its page, from the start of the process to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
import durabletask.internal.orchestrator_service_pb2_grpc as stubs

from localazure.functions import logs
from localazure.functions.durable.protocol.calls import DEFAULT_HUB, hub_name
from localazure.functions.durable.protocol.client_service import ClientService
from localazure.functions.durable.protocol.entity_service import EntityService
from localazure.functions.durable.protocol.serving import serving
from localazure.processes.interruption import end_on_signals
from localazure.processes.state_folder import make_state_folder
from localazure.runtime.environment import LOOPBACK
from localazure.runtime.http_server import listening, runner_of
from localazure.scheduler.hubs import Hub, Hubs
from localazure.scheduler.page_server import page
from localazure.scheduler.worker_service import WorkerService


class _Service(  # pyright: ignore[reportIncompatibleMethodOverride] - the stubs have no types
    WorkerService, ClientService, EntityService, stubs.TaskHubSidecarServiceServicer
):
    """The whole service."""

    def __init__(self, hubs: Hubs) -> None:
        self.hubs = hubs

    def hub(self, name: str) -> Hub:
        """Return a task hub. Raises InvalidHubName."""
        return self.hubs.get(name)

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
async def running(folder: Path, port: int, page_port: int = 0) -> AsyncGenerator[int]:
    """Run a scheduler; yields its port.

    Args:
        folder: for the files of task hubs, created if missing.
        port: TCP port on the loopback interface; 0: a free one.
        page_port: the port of its page; 0: no page.

    Raises:
        StartError: the port is taken.
        OSError: the port of the page is taken.
    """
    hubs = Hubs(folder)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if page_port:
                runner = runner_of(page(hubs, f"http://{LOOPBACK}:{page_port}"))
                await stack.enter_async_context(listening(runner, {page_port: None}))
            yield await stack.enter_async_context(serving(_Service(hubs), port))
    finally:
        await hubs.close()


async def run(state: Path, port: int, page_port: int) -> None:
    """Run a scheduler until SIGTERM or SIGINT.

    Raises:
        StartError: the port is taken, or the state folder cannot be written.
        OSError: the port of the page is taken.
    """
    logging.basicConfig(level=logging.INFO)
    make_state_folder(state)
    stop = asyncio.Event()
    end_on_signals(stop.set)
    with logs.configured({}):
        async with running(state / "scheduler", port, page_port) as bound_port:
            address = f"http://{LOOPBACK}:{bound_port}"
            shown = f"  its page: http://{LOOPBACK}:{page_port}\n" if page_port else ""
            sys.stdout.write(
                f"Durable Task Scheduler: {address}\n{shown}"
                f"  Endpoint={address};TaskHub={DEFAULT_HUB};Authentication=None\n"
                "ready; Ctrl-C ends it\n"
            )
            sys.stdout.flush()
            await stop.wait()
