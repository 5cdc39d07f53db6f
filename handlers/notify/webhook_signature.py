"""Sign and verify webhooks as https://www.standardwebhooks.com describes them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook, WebhookVerificationError

from orchestrations.errors import InvalidSetting, PermanentError

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md:
# secrets of 24 to 64 bytes.
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix that marks a secret of webhooks
SECRET_BYTES = range(24, 65)


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
