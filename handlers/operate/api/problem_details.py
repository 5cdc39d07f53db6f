"""Answers to HTTP callers: JSON documents, and problem documents for errors.

https://www.rfc-editor.org/rfc/rfc9457
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from azure.functions import HttpResponse

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"


@dataclass(frozen=True)
class Answer:
    """An HTTP status with a JSON document."""

    status: int
    document: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    media_type: str = JSON_TYPE

    def to_response(self) -> HttpResponse:
        """The response as an object of Azure Functions."""
        return HttpResponse(
            json.dumps(self.document),
            status_code=self.status,
            headers=dict(self.headers),
            mimetype=self.media_type,
        )

    def to_conditional_response(self, if_none_match: str | None) -> HttpResponse:
        """The response with an ETag; 304 without a body if the caller has the same content.

        https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match
        """
        response = self.to_response()
        if self.status != HTTPStatus.OK:
            return response
        etag = f'"{hashlib.sha256(response.get_body()).hexdigest()[:32]}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        known = {each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")}
        if etag in known:
            return HttpResponse(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        response.headers.update(headers)
        return response


class Problem(Exception):
    """A refused or failed request, as a problem document."""

    def __init__(self, status: int, kind: str, detail: str, *, where: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.where = where

    def to_answer(self) -> Answer:
        """The problem document.

        `type` is a relative reference that identifies the kind of problem; the extension `where`
        names the wrong header, parameter or key.
        """
        document = {
            "type": f"/problems/{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.where is not None:
            document["where"] = self.where
        return Answer(self.status, document, media_type=PROBLEM_TYPE)


def invalid_request(detail: str, *, where: str) -> Problem:
    """A problem with status 400; `where` names the wrong header, parameter or key."""
    return Problem(400, "invalid-request", detail, where=where)


def unavailable(detail: str) -> Problem:
    """A problem with status 503: what was asked for is not known now."""
    return Problem(503, "unavailable", detail)
