"""Signed webhooks, in and out, as https://www.standardwebhooks.com describes them.

What is sent out goes to addresses that strangers may name (a caller's `callback_url`), so that the
receiver is checked as OWASP's "Server-Side Request Forgery Prevention" asks for: see
`handlers.notifications.receiver_addresses`.
"""

from __future__ import annotations

import base64
import binascii
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

from standardwebhooks import Webhook, WebhookVerificationError

from handlers.configuration.settings import Network
from handlers.notifications.receiver_addresses import (
    Receiver,
    Resolve,
    check_addresses,
    parse_receiver,
    resolve,
)
from orchestrations.errors import InvalidSetting, PermanentError, TransientError

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md:
# secrets of 24 to 64 bytes, payloads under 20 KB, 15 to 30 s for an answer.
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix that tells what a secret is for
SECRET_BYTES = range(24, 65)
BODY_LIMIT_BYTES = 20_000
TIMEOUT_SECONDS = 15.0
USER_AGENT = "Landfall-Webhooks/1"


class BadSignature(PermanentError):
    """The sender did not prove that it knows the secret, or the message is too old."""


class ReceiverUnreachable(TransientError):
    """No answer came; the message names the host alone, since paths and queries can be secret."""


class BodyTooLarge(PermanentError):
    """A webhook's body is over `BODY_LIMIT_BYTES`."""


@dataclass(frozen=True)
class Answer:
    """What a receiver answered."""

    status: int
    retry_after_seconds: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether the receiver has it. A redirect is no such answer and is not followed."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of successes


def parse_secrets(value: str, *, setting: str) -> Sequence[Webhook]:
    """The secrets in an app setting: several, separated by spaces, while one replaces another.

    Raises:
        InvalidSetting: one is no secret; the message has its position, not the secret.
    """
    secrets = value.split()
    if not secrets:
        raise InvalidSetting(f"app setting {setting} is missing: set it to a whsec_ secret")
    return [
        Webhook(_decode_secret(secret, f"app setting {setting}, secret {position}"))
        for position, secret in enumerate(secrets, start=1)
    ]


def _decode_secret(secret: str, where: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(SECRET_PREFIX) or len(key) not in SECRET_BYTES:
        raise InvalidSetting(f"{where}: must be whsec_ and the base64 of 24 to 64 random bytes")
    return key


def sign(
    secrets: Sequence[Webhook], *, message_id: str, at: datetime, body: bytes
) -> dict[str, str]:
    """The three headers of a message, with one signature for each secret.

    Args:
        secrets: from `parse_secrets`.
        message_id: stays the same whenever the message is sent again.
        at: when it is sent, timezone-aware.
        body: UTF-8.
    """
    # The library drops the timezone before it takes the seconds.
    sent_at = at.astimezone(UTC)
    text = body.decode()
    signatures = (
        secret.sign(msg_id=message_id, timestamp=sent_at, data=text) for secret in secrets
    )
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(int(sent_at.timestamp())),
        SIGNATURE_HEADER: " ".join(signatures),
    }


def verify(secrets: Sequence[Webhook], headers: Mapping[str, str], body: bytes) -> str:
    """Check who sent a message, and that this was in the last (or next) five minutes.

    Returns:
        Its id: the same id is the same message, sent again.

    Raises:
        BadSignature: no secret made the signature, a header is missing or malformed, or the
            timestamp is too far from now.
    """
    why = "no secret is known"
    for secret in secrets:
        try:
            secret.verify(body, dict(headers), json_parse=False)
        except WebhookVerificationError as error:
            why = str(error)
        except ValueError:  # headers and bodies that the library cannot take apart
            why = "headers or body are malformed"
        else:
            return next(value for name, value in headers.items() if name.lower() == ID_HEADER)
    raise BadSignature(
        f"headers {ID_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER}: {why}; sign "
        "<id>.<timestamp>.<body> as https://www.standardwebhooks.com describes"
    )


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
    are not followed, proxies not used.

    Args:
        url: the receiver.
        headers: from `sign`.
        body: JSON.
        networks: `Settings.webhook_networks`.
        now: to make sense of a Retry-After that is a date.
        resolver: names to addresses.
        tls: whom to trust; the machine's roots when None.
        timeout_seconds: for all that follows DNS, up to the end of the answer's head.

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
