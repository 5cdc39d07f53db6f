"""The server's side of a client's connection: one protocol object for each client."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Iterable
from typing import Any

from localazure import limits
from localazure.faults.injector import Injector
from localazure.servicebus import attaching, nodes
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.connection import Closed, Connection, Event, Opened
from localazure.servicebus.amqp.errors import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    INTERNAL_ERROR,
    UNAUTHORIZED_ACCESS,
)
from localazure.servicebus.amqp.link import CreditChanged, Disposed, Link, MessageReceived
from localazure.servicebus.amqp.session import LinkAttached, LinkDetached
from localazure.servicebus.amqp.types import ULong
from localazure.servicebus.attaching import RefusedError
from localazure.servicebus.authorization import Authorization, Identities, SharedKey
from localazure.servicebus.broker import Broker
from localazure.token_buckets import TokenBuckets

logger = logging.getLogger(__name__)

CONTAINER_ID = "localazure"
# Microsoft's SDKs prefer MSSBCBS. Clients of all mechanisms but PLAIN authenticate over $cbs.
MECHANISMS = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
MAX_BATCH_SIZE_PROPERTY = "com.microsoft:max-message-batch-size"
# A client that has not opened its connection after this time is disconnected.
HANDSHAKE_SECONDS = 60.0
LINK_IDLE_MS = limits.SERVICE_BUS_LINK_IDLE.value * 60_000
CONNECTION_IDLE_MS = limits.SERVICE_BUS_CONNECTION_IDLE.value * 60_000
# Time for clients to answer the close of their connection before their sockets are closed.
CLOSE_TIMEOUT_SECONDS = 1.0
# The first bytes of clients that speak another protocol, and what they should do.
_OTHER_PROTOCOLS = {
    b"\x16\x03": (  # RFC 8446, section 5.1
        "TLS",
        "set UseDevelopmentEmulator=true in the connection string, or connect with an identity",
    ),
    b"GET ": (
        "HTTP",
        "AMQP over WebSockets is not served: leave out transport_type=AmqpOverWebsocket",
    ),
}
_TOLD = TokenBuckets(1, 1 / 60, time.monotonic)
"""Once a minute for each peer and protocol."""


class ClientProtocol(asyncio.Protocol):
    """One client: its socket, its AMQP connection, and the nodes of its links."""

    def __init__(
        self,
        broker: Broker,
        keys: Collection[SharedKey],
        clients: set[ClientProtocol],
        faults: Injector,
        identities: Identities | None = None,
    ) -> None:
        self.broker = broker
        self.faults = faults
        self.authorization = Authorization(keys, identities)
        self._clients = clients
        self._connection = Connection(
            container_id=CONTAINER_ID,
            mechanisms=MECHANISMS,
            authenticate=self.authorization.authenticate,
        )
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None
        self._handshake: asyncio.TimerHandle | None = None
        self._without_links_ms = 0
        self._is_flush_due = False
        self._is_new = True

    # --- the socket -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timers."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._clients.add(self)
        self._handshake = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self.abort)
        self._tick_later()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        if self._is_new:
            self._is_new = False
            self._tell_of_another_protocol(data)
        self._handle(self._connection.receive(data))
        self._flush()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its answers: they stay in memory."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again: the client has read its answers."""
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the links. Locks of their messages last until they expire."""
        del exc
        self._transport = None
        self._clients.discard(self)
        for timer in (self._ticker, self._handshake):
            if timer is not None:
                timer.cancel()
        for link in list(self._connection.links()):
            _release(link)

    def close(self, error: p.Error) -> None:
        """Close the connection from this end. The socket is closed when the client answers."""
        self._handle(self._connection.close(error))
        self._flush()

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- for nodes --------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. An error in it closes the connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def flush_soon(self) -> None:
        """Schedule a flush of the output buffer at the end of this turn of the event loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def reply_nodes(self) -> list[nodes.ReplyNode]:
        """The links that carry replies to requests."""
        attached = [link.node for link in self._connection.links()]
        return [node for node in attached if isinstance(node, nodes.ReplyNode)]

    # --- internals --------------------------------------------------------------------------------

    def _tell_of_another_protocol(self, data: bytes) -> None:
        """Log what a client does wrong that only sees its connection end."""
        start = next((each for each in _OTHER_PROTOCOLS if data.startswith(each)), None)
        if start is not None and self._transport is not None:
            peer = self._transport.get_extra_info("peername")[0]
            port = self._transport.get_extra_info("sockname")[1]
            if not _TOLD.take((peer, start)):
                protocol, remedy = _OTHER_PROTOCOLS[start]
                logger.warning(
                    "%s speaks %s to port %s, which takes AMQP: %s", peer, protocol, port, remedy
                )

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a connection is closed after an error", exc_info=task.exception())
            self.close(p.Error(INTERNAL_ERROR, "an error in the broker, see its log", {}))

    def _flush(self) -> None:
        self._is_flush_due = False
        output = self._connection.take_output()
        if self._transport is None:
            return
        if output:
            self._transport.write(output)
        if self._connection.is_closed:
            self._transport.close()

    def _tick_later(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        interval_ms = self._connection.tick_interval_ms
        self._ticker = asyncio.get_running_loop().call_later(
            interval_ms / 1000, self.tick, interval_ms
        )

    def tick(self, elapsed_ms: int) -> None:
        """Send heartbeats. Detach idle links and links whose token has expired."""
        self._handle(self._connection.tick(elapsed_ms))
        for link in list(self._connection.links()):
            is_refused = link.node is None
            if not is_refused and not attaching.is_allowed(self, link, attaching.address_of(link)):
                _release(link)
                link.detach(p.Error(UNAUTHORIZED_ACCESS, "the token or a role has ended", {}))
            elif isinstance(link.node, nodes.SendNode | nodes.ReceiveNode) and (
                link.idle_ms(elapsed_ms) >= LINK_IDLE_MS
            ):
                _release(link)
                link.detach(_idle_error(link))
        self._close_without_links(elapsed_ms)
        self._flush()
        self._tick_later()

    def _handle(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Opened():
                    if self._handshake is not None:
                        self._handshake.cancel()
                    self._tick_later()  # the peer has announced its idle timeout
                case LinkAttached(link):
                    self._attach(link)
                case LinkDetached(link):
                    _release(link)
                case CreditChanged(Link(node=nodes.ReceiveNode() | nodes.ReplyNode() as node)):
                    node.on_credit()
                case MessageReceived(Link(node=nodes.SendNode() | nodes.RequestNode() as node)):
                    node.on_message(event)
                case Disposed(Link(node=nodes.ReceiveNode() as node)):
                    node.on_disposed(event)
                case Closed(p.Error(condition, description)):
                    logger.info("a connection was closed: %s %s", condition, description)
                case _:
                    pass

    def _close_without_links(self, elapsed_ms: int) -> None:
        has_links = any(True for _ in self._connection.links())
        self._without_links_ms = 0 if has_links else self._without_links_ms + elapsed_ms
        if self._without_links_ms >= CONNECTION_IDLE_MS:
            reason = (
                "The connection was inactive for more than the allowed "
                f"{CONNECTION_IDLE_MS} milliseconds and is closed by container 'LinkTracker'."
            )
            self._handle(self._connection.close(p.Error(CONNECTION_FORCED, reason, {})))

    def _attach(self, link: Link) -> None:
        try:
            link.node = attaching.node_for(self, link)
        except RefusedError as refusal:
            link.refuse(p.Error(refusal.condition, str(refusal), {}))
            return
        batch_bytes = self.broker.namespace.batch_bytes
        node = link.node
        link.accept(
            max_message_size=(
                node.message_bytes if isinstance(node, nodes.SendNode) else batch_bytes
            ),
            properties={MAX_BATCH_SIZE_PROPERTY: ULong(batch_bytes)},
        )


def _idle_error(link: Link) -> p.Error:
    """The error of an idle link, with the service's message."""
    role = "consumer" if link.is_sender else "publisher"
    timer = "AmqpMessageConsumer" if link.is_sender else "AmqpMessagePublisher"
    return p.Error(
        DETACH_FORCED,
        f"The link {link.attach.name!r} is force detached by the broker due to errors occurred in "
        f"{role}(link{link.handle}). Detach origin: {timer}.IdleTimerExpired: Idle timeout: "
        f"00:{limits.SERVICE_BUS_LINK_IDLE.value}:00.",
        {},
    )


def _release(link: Link) -> None:
    if isinstance(link.node, nodes.ReceiveNode):
        link.node.on_detached()


async def close_clients(clients: set[ClientProtocol]) -> None:
    """Close the connections of all clients, and after `CLOSE_TIMEOUT_SECONDS` their sockets."""
    for client in list(clients):
        client.close(p.Error(CONNECTION_FORCED, "the broker is stopping", {}))
    deadline = asyncio.get_running_loop().time() + CLOSE_TIMEOUT_SECONDS
    while clients and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.01)
    for client in list(clients):
        client.abort()
