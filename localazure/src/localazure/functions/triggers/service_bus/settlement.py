"""Settles messages for functions that do so by hand, with the extension's ServiceBusMessageActions.

The extension's client calls its host by gRPC, whose address it reads from the arguments of the
process: on Azure those of the worker. The extension has brought gRPC.

Source: SettlementService of the extension 5.x,
https://github.com/Azure/azure-sdk-for-net/tree/main/sdk/servicebus/Microsoft.Azure.WebJobs.Extensions.ServiceBus/src/Grpc
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Iterable
from typing import Any, Final

import grpc
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusError
from google.protobuf.empty_pb2 import Empty

from localazure.functions.triggers.service_bus.link import Link
from localazure.functions.worker.invocation import Invoker
from localazure.runtime.environment import LOOPBACK

_STUBS: Final = "azurefunctions.extensions.bindings.protos.settlement_pb2_grpc"
_MOST_BYTES: Final = 2**31 - 1  # as Azure's host says


class SettlementService:
    """The service for the functions of one app; it settles messages that their triggers hold."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker
        self._held: dict[str, tuple[Link, ServiceBusReceivedMessage]] = {}
        self._resources = contextlib.AsyncExitStack()

    def hold(self, link: Link, messages: Iterable[ServiceBusReceivedMessage]) -> None:
        """Let the function that is called next settle these messages."""
        self._held.update((str(one.lock_token), (link, one)) for one in messages)

    def release(
        self, messages: Iterable[ServiceBusReceivedMessage]
    ) -> list[ServiceBusReceivedMessage]:
        """End that; return the messages that the function has not settled."""
        return [one for one in messages if self._held.pop(str(one.lock_token), None)]

    async def start(self) -> None:
        """Start the server, and tell the client its address."""
        self._invoker.separate()  # the client is synchronous, in any function
        server: Any = grpc.aio.server()
        importlib.import_module(_STUBS).add_SettlementServicer_to_server(self, server)
        port = server.add_insecure_port(f"{LOOPBACK}:0")
        await server.start()
        self._resources.push_async_callback(server.stop, 0)
        self._resources.callback(setattr, sys, "argv", sys.argv)
        address = {"host": LOOPBACK, "port": port, "functions-grpc-max-message-length": _MOST_BYTES}
        # The host's own arguments would be taken for these: --port, and --functions as a prefix.
        sys.argv = [sys.argv[0], *(f"--{name}={value}" for name, value in address.items())]

    async def stop(self) -> None:
        """Go on, since functions in progress may settle their messages."""

    async def finish(self) -> None:
        """Stop the server."""
        await self._resources.aclose()

    async def Complete(self, request: Any, context: Any) -> Empty:
        """Complete a message."""
        return await self._settle(request, context, "complete_message")

    async def Abandon(self, request: Any, context: Any) -> Empty:
        """Abandon a message."""
        return await self._settle(request, context, "abandon_message")

    async def Defer(self, request: Any, context: Any) -> Empty:
        """Defer a message."""
        return await self._settle(request, context, "defer_message")

    async def Deadletter(self, request: Any, context: Any) -> Empty:
        """Move a message to the dead-letter queue."""
        return await self._settle(
            request,
            context,
            "dead_letter_message",
            reason=request.deadletterReason.value or None,
            error_description=request.deadletterErrorDescription.value or None,
        )

    async def RenewMessageLock(self, request: Any, context: Any) -> Empty:
        """Renew the lock of a message, which stays to be settled."""
        return await self._settle(request, context, "renew_message_lock")

    async def GetSessionState(self, request: Any, context: Any) -> None:
        """Refuse: there are no sessions here."""
        refusal = f"SessionId {request.sessionId} not found."
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)

    SetSessionState = ReleaseSession = RenewSessionLock = GetSessionState

    async def _settle(self, request: Any, context: Any, how: str, **options: str | None) -> Empty:
        token: str = request.locktoken
        held = self._held.pop(token, None)
        if held is None:
            refusal = f"LockToken {token} not found."
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
            raise AssertionError  # `abort` raises
        link, message = held
        settle = functools.partial(getattr(link.receiver, how), **options)
        is_settled = False
        try:
            await link.settle(settle, message)
            is_settled = how != "renew_message_lock"
        except (ServiceBusError, OSError, ValueError) as error:
            await context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
        finally:
            if not is_settled:
                self._held[token] = held
        return Empty()
