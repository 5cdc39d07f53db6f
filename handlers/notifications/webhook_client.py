"""Send webhooks to receivers that may be sent to.

Strangers may name the address (a caller's `callback_url`), so the receiver is checked as OWASP's
"Server-Side Request Forgery Prevention" asks for: see `handlers.notifications.receiver_addresses`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from handlers.configuration.settings import Network
from handlers.notifications.receiver_addresses import (
    Receiver,
    Resolve,
    check_addresses,
    parse_receiver,
    resolve,
)
from orchestrations.errors import PermanentError, TransientError

# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md:
# payloads under 20 KB, 15 to 30 s for an answer.
BODY_LIMIT_BYTES = 20_000
TIMEOUT_SECONDS = 15.0
USER_AGENT = "Landfall-Webhooks/1"


class ReceiverUnreachable(TransientError):
    """No answer came; the message names the host alone, since paths and queries can be secret."""


class BodyTooLarge(PermanentError):
    """A webhook's body is over `BODY_LIMIT_BYTES`."""


@dataclass(frozen=True)
class Answer:
    """A receiver's answer."""

    status: int
    retry_after_seconds: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether the receiver has it. A redirect is no such answer and is not followed."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of successes


def post(
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes,
    networks: Sequence[Network],
    now: datetime,
    resolver: Resolve = resolve,
    tls: ssl.SSLContext | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Answer:
    """Send a webhook to a receiver that may be sent to.

    It goes to one of the very addresses that were checked, so that a name which resolves to another
    one a moment later gains nothing; the Host header and the certificate are the name's. Redirects
    are not followed, proxies not used. `timeout_seconds` are for all that follows DNS, up to the
    end of the answer's head.

    Raises:
        ReceiverRefused: it is not public and in no allowed network, or not https.
        ReceiverUnreachable: it could not be found, reached or trusted, or did not answer in time.
        BodyTooLarge: the body is.
    """
    if len(body) > BODY_LIMIT_BYTES:
        raise BodyTooLarge(f"a body of {len(body)} bytes is over {BODY_LIMIT_BYTES}")
    receiver = parse_receiver(url)
    try:
        addresses = check_addresses(receiver, resolver(receiver.host, receiver.port), networks)
        deadline = time.monotonic() + timeout_seconds
        with (
            _connect(addresses, receiver.port, timeout_seconds) as plain,
            _cut_off(plain, deadline - time.monotonic()),
            _secure(plain, receiver, tls) as channel,
        ):
            return _exchange(channel, receiver, headers, body, now)
    except (OSError, http.client.HTTPException) as error:
        # Without the error's text: http.client quotes what the other side wrote.
        raise ReceiverUnreachable(
            f"host {receiver.host} cannot be found, reached or trusted, or gave no answer within "
            f"{timeout_seconds:g} s: {type(error).__name__}"
        ) from error


def _connect(addresses: Sequence[str], port: int, timeout_seconds: float) -> socket.socket:
    """The first address that takes a connection; they share the time."""
    for position, address in enumerate(addresses, start=1):
        try:
            return socket.create_connection((address, port), timeout_seconds / len(addresses))
        except OSError:
            if position == len(addresses):
                raise
    raise OSError("the name has no address")


@contextlib.contextmanager
def _cut_off(connection: socket.socket, seconds: float) -> Generator[None]:
    """End the connection when the time is over, however slowly the other side drips.

    A socket's own timeout is only for each single read. The duplicate is still good after TLS has
    taken the socket over.

    Raises:
        TimeoutError: on leaving, when it was cut: http.client takes that for the head's end.
    """
    duplicate = socket.socket(fileno=os.dup(connection.fileno()))
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        with contextlib.suppress(OSError):
            duplicate.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(seconds, 0.0), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        duplicate.close()
    if is_over.is_set():
        raise TimeoutError(f"no answer within {seconds:g} s")


def _secure(plain: socket.socket, receiver: Receiver, tls: ssl.SSLContext | None) -> socket.socket:
    if receiver.scheme != "https":
        return plain
    context = tls or ssl.create_default_context()
    return context.wrap_socket(plain, server_hostname=receiver.host)


def _exchange(
    channel: socket.socket,
    receiver: Receiver,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
) -> Answer:
    connection = http.client.HTTPConnection(receiver.host, receiver.port)
    connection.sock = channel  # so that it opens none of its own
    fields = {
        "Host": receiver.authority,
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "Connection": "close",
        **headers,
    }
    connection.request("POST", receiver.target, body, fields)
    response = connection.getresponse()
    try:
        return Answer(
            response.status, parse_retry_after(response.getheader("Retry-After"), now=now)
        )
    finally:
        response.close()


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds from now that a Retry-After header asks for: a number, or a date (RFC 9110, 10.2.3).

    None when there is none, or nonsense.
    """
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    # "-0000" means UTC of unknown origin: email's parser leaves it naive.
    return max((moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds(), 0.0)
