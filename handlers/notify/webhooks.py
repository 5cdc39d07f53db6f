"""Signs, verifies and sends webhooks, as https://www.standardwebhooks.com describes them.

They are sent only to receivers whose URLs operators have set.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urlsplit

from standardwebhooks import Webhook, WebhookVerificationError

from orchestrations.errors import InvalidSetting, PermanentError, TransientError

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md:
# secrets of 24 to 64 bytes.
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix that marks a secret of webhooks
SECRET_BYTES = range(24, 65)
# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md:
# payloads under 20 KB, 15 to 30 s for an answer.
BODY_LIMIT_BYTES = 20_000
TIMEOUT_SECONDS = 15.0
DEFAULT_PORTS = {"https": 443, "http": 80}
USER_AGENT = "Landfall-Webhooks/1"


class BadSignature(PermanentError):
    """The sender did not prove that it knows the secret, or the message is too old."""


def parse_secrets(value: str, *, setting: str) -> Sequence[Webhook]:
    """The secrets in an app setting, separated by spaces: several during a rotation.

    Raises:
        InvalidSetting: one is not a secret; the message has its position, not the secret.
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
    """The three headers of a message (UTF-8), with one signature for each secret.

    `message_id` is the same for every attempt; `at` is the time of this attempt.
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

    Returns: The message's id; a repeated id is a repeated message.

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
        except ValueError:  # the library cannot parse the headers or the body
            why = "headers or body are malformed"
        else:
            return next(value for name, value in headers.items() if name.lower() == ID_HEADER)
    raise BadSignature(
        f"headers {ID_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER}: {why}; sign "
        "<id>.<timestamp>.<body> as https://www.standardwebhooks.com describes"
    )


class ReceiverUnreachable(TransientError):
    """There was no response; the message has only the host, since the URL can be secret."""


class BodyTooLarge(PermanentError):
    """A webhook's body is over `BODY_LIMIT_BYTES`."""


@dataclass(frozen=True)
class Answer:
    """A receiver's response."""

    status: int
    retry_after_seconds: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether the receiver accepted the webhook; a redirect is no acceptance."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of successes


def parse_receiver(url: str, *, setting: str) -> SplitResult:
    """Parse the URL of a receiver, the value of an app setting.

    Raises:
        InvalidSetting: it is not https, or http to this machine. The URL can be secret, so the
            message does not have it.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # a port that is no number, or half of a bracket
        parts = urlsplit("")
    host = parts.hostname or ""
    schemes = ("https", "http") if _is_this_machine(host) else ("https",)
    is_visible = re.fullmatch("[!-~]+", url) is not None
    if parts.scheme not in schemes or not host or "@" in parts.netloc or not is_visible:
        raise InvalidSetting(
            f"app setting {setting}: set it to https://<host>[:<port>]/<path>, in "
            "visible ASCII and without credentials; only this machine may have http://"
        )
    return parts


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def post(
    receiver: SplitResult,
    *,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
    tls: ssl.SSLContext | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Answer:
    """Send a webhook; follows no redirects and uses no proxy.

    `timeout_seconds` covers everything from the connection to the end of the response's headers.

    Raises:
        ReceiverUnreachable: it was not found, reached or trusted, or did not answer in time.
        BodyTooLarge: the body is.
    """
    if len(body) > BODY_LIMIT_BYTES:
        raise BodyTooLarge(f"a body of {len(body)} bytes is over {BODY_LIMIT_BYTES}")
    host, port = receiver.hostname or "", receiver.port or DEFAULT_PORTS[receiver.scheme]
    try:
        deadline = time.monotonic() + timeout_seconds
        with (
            socket.create_connection((host, port), timeout_seconds) as plain,
            _cut_off(plain, deadline - time.monotonic()),
            _secure(plain, receiver, tls) as channel,
        ):
            return _exchange(channel, receiver, headers, body, now)
    except (OSError, http.client.HTTPException) as error:
        # Without the error's text: http.client quotes the response.
        raise ReceiverUnreachable(
            f"host {host} cannot be found, reached or trusted, or gave no answer within "
            f"{timeout_seconds:g} s: {type(error).__name__}"
        ) from error


@contextlib.contextmanager
def _cut_off(connection: socket.socket, seconds: float) -> Generator[None]:
    """Shut the connection down after `seconds`, even if data still arrives slowly.

    A socket's own timeout is per read. The duplicate stays valid when TLS detaches the socket.

    Raises:
        TimeoutError: on exit, if shut down: http.client takes that for the headers' end.
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


def _secure(
    plain: socket.socket, receiver: SplitResult, tls: ssl.SSLContext | None
) -> socket.socket:
    if receiver.scheme != "https":
        return plain
    context = tls or ssl.create_default_context()
    return context.wrap_socket(plain, server_hostname=receiver.hostname)


def _exchange(
    channel: socket.socket,
    receiver: SplitResult,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
) -> Answer:
    connection = http.client.HTTPConnection(receiver.hostname or "", DEFAULT_PORTS[receiver.scheme])
    connection.sock = channel  # so that it does not open a connection itself
    fields = {
        "Host": receiver.netloc,
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "Connection": "close",
        **headers,
    }
    target = (receiver.path or "/") + (f"?{receiver.query}" if receiver.query else "")
    connection.request("POST", target, body, fields)
    response = connection.getresponse()
    try:
        return Answer(
            response.status, parse_retry_after(response.getheader("Retry-After"), now=now)
        )
    finally:
        response.close()


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """The delay in seconds of a Retry-After header, a number or a date (RFC 9110, 10.2.3).

    None if it is missing or malformed.
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
