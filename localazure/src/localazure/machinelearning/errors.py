"""Errors in ARM's form: `{"error": {"code", "message"}}` with an HTTP status.

Sources: https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/overview and the
common error response of the ARM RPC.
"""

from __future__ import annotations


class ArmError(Exception):
    """The error response to a request.

    Args:
        status: HTTP status.
        code: ARM's or Azure ML's error code, such as `NotFound`.
        message: the cause, the place and the remedy, without secrets.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def not_found(kind: str, name: str) -> ArmError:
    """404: the resource does not exist."""
    return ArmError(404, "NotFound", f"{kind} {name!r} was not found in this workspace")


def invalid(message: str) -> ArmError:
    """400: the request is not valid; a retry cannot succeed."""
    return ArmError(400, "UserError", message)


def immutable(kind: str, name: str, fields: list[str]) -> ArmError:
    """409: the definition of a version cannot change."""
    return ArmError(
        409,
        "Conflict",
        f"{kind} {name!r} exists and its {', '.join(fields)} cannot change; use a new version",
    )
