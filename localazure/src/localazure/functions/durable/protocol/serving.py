"""A gRPC server for the protocol, on the loopback interface."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2_grpc as stubs
import grpc

from localazure.errors import StartError
from localazure.functions.durable.engine.instance import FINISHED
from localazure.functions.durable.protocol.client_service import ClientService
from localazure.functions.durable.protocol.entity_service import EntityService
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.runtime.environment import LOOPBACK

# gRPC refuses messages over 4 MB by default, and a history may be longer.
_MOST_BYTES: Final = 256 * 1024 * 1024

_OPTIONS: Final = [
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_send_message_length", _MOST_BYTES),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail
    # A worker that does not answer a ping in time has lost its items.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


@contextlib.asynccontextmanager
async def serving(
    service: stubs.TaskHubSidecarServiceServicer, port: int = 0
) -> AsyncGenerator[int]:
    """Run a server; yield its port.

    Args:
        service: answers the calls.
        port: TCP port; 0: a free one.

    Raises:
        StartError: the port is taken.
    """
    server: Any = grpc.aio.server(options=_OPTIONS)
    stubs.add_TaskHubSidecarServiceServicer_to_server(service, server)
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


class OneHub(  # pyright: ignore[reportIncompatibleMethodOverride] - the stubs have no types
    ClientService, EntityService, stubs.TaskHubSidecarServiceServicer
):
    """The service for the clients of one task hub, whichever a call names.

    As in the Durable extension, a new instance replaces one that has finished.
    """

    replaceable = FINISHED

    def __init__(self, hub: TaskHub) -> None:
        self._hub = hub

    def hub(self, name: str) -> TaskHub:
        """Return the task hub."""
        del name
        return self._hub
