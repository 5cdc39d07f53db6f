"""Answers to HTTP callers: documents, and problem documents where something is wrong.

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
    """A status, and a JSON document."""

    status: int
    document: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    media_type: str = JSON_TYPE

    def to_response(self) -> HttpResponse:
        """The form that Azure Functions takes."""
        return HttpResponse(
            json.dumps(self.document),
            status_code=self.status,
            headers=dict(self.headers),
            mimetype=self.media_type,
        )

    def to_conditional_response(self, if_none_match: str | None) -> HttpResponse:
        """The same with an ETag of the content; 304 without a body where the caller has it.

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
    """A request that is refused: the caller can correct it."""

    def __init__(self, status: int, kind: str, detail: str, *, where: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.where = where

    def to_answer(self) -> Answer:
        """The problem document.

        `type` is a relative reference that identifies the kind of problem; `where`, an extension,
        names the header, parameter or key that is wrong.
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
    """400: `where` names the header, parameter or key that is wrong."""
    return Problem(400, "invalid-request", detail, where=where)
