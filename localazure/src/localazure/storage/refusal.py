"""Errors of the storage services, in the form of each service. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/status-and-error-codes2
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from xml.sax.saxutils import escape

from localazure.storage_client.endpoint import Service


@dataclass(frozen=True)
class Refusal:
    """An error response of a service."""

    status: HTTPStatus
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def body(self, service: Service) -> tuple[str, str]:
        """Content type and body: JSON for the Table service, XML for the others."""
        if service is Service.TABLE:
            error = {"code": self.code, "message": {"lang": "en-US", "value": self.message}}
            return "application/json", json.dumps({"odata.error": error})
        return "application/xml", (
            f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{escape(self.code)}</Code>'
            f"<Message>{escape(self.message)}</Message></Error>"
        )


def not_covered(what: str) -> Refusal:
    """The refusal of a feature that localazure does not cover."""
    message = f"localazure does not cover {what}."
    return Refusal(HTTPStatus.NOT_IMPLEMENTED, "NotImplemented", message)


SERVER_BUSY = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "ServerBusy", "The server is busy.")
"""The SDKs retry after this error."""

NOT_AUTHENTIC = Refusal(
    HTTPStatus.FORBIDDEN,
    "AuthenticationFailed",
    "Server failed to authenticate the request. Make sure the value of Authorization header is "
    "formed correctly including the signature.",
)
"""The key or the signature is wrong."""

TOO_LARGE = Refusal(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "RequestBodyTooLarge",
    "The request body is too large and exceeds the maximum permissible limit.",
)
