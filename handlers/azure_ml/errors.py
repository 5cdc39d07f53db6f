"""Which of Azure ML's answers are refusals: the same request would be refused again."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from orchestrations.errors import JobRejected

# Not 401 and 403: a role assignment takes up to half an hour to spread, and is mended without the
# request; not 408, 429 and 5xx: they pass.
# https://learn.microsoft.com/azure/role-based-access-control/troubleshooting
REFUSED_STATUSES = frozenset({400, 404, 405, 409, 412, 413, 422})
# Failures travel in messages (Service Bus headers are limited to 32 KB).
MESSAGE_CHARACTERS = 2_000


@contextlib.contextmanager
def refused_as_job_rejected(action: str) -> Generator[None]:
    """Turn a refusal inside the block into the error that no retry can help.

    Args:
        action: what was asked for, as the message's beginning: "submit job x".

    Raises:
        JobRejected: Azure ML, or its SDK before asking, refused.
        AzureError: as the SDK raised it, for what may pass.
    """
    try:
        yield
    except AzureError as error:
        if not is_refusal(error):
            raise
        raise JobRejected(f"cannot {action}: {reason(error)}") from error


def is_refusal(error: AzureError) -> bool:
    """Whether the request itself is at fault, and not the way to the service or its state."""
    if isinstance(error, HttpResponseError):
        return error.status_code in REFUSED_STATUSES
    # Loaded late: see handlers.configuration.clients. Loaded already, given an AzureError.
    from azure.ai.ml.exceptions import MlException  # noqa: PLC0415 - see above

    return isinstance(error, MlException) and not _came_from_a_fault(error)


def reason(error: AzureError) -> str:
    """What the service said, as `code: message` where it says both."""
    if isinstance(error, HttpResponseError) and error.error and error.error.message:
        return shorten(f"{error.error.code}: {error.error.message}")
    return shorten(str(error.message or type(error).__name__))


def shorten(text: str) -> str:
    """The text on one line, and no longer than a message may be."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_CHARACTERS else line[: MESSAGE_CHARACTERS - 1] + "…"


def _came_from_a_fault(error: BaseException) -> bool:
    """The SDK wraps faults of uploads in exceptions of its own."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, ServiceRequestError | ServiceResponseError):
            return True
        if isinstance(cause, HttpResponseError):
            return cause.status_code not in REFUSED_STATUSES
        cause = cause.__cause__ or cause.__context__
    return False
