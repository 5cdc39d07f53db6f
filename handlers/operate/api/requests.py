"""What a request of the API contains, and the two kinds of its answer: document and problem.

Parameters and bodies are parsed by models; unknown names are refused. Problem documents are those
of https://www.rfc-editor.org/rfc/rfc9457.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar, get_args
from urllib.parse import urlencode

from azure.functions import HttpResponse
from pydantic import BaseModel, ConfigDict, RootModel, ValidationError

from orchestrations.configuration.pipeline import Pipeline

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"
SVG_TYPE = "image/svg+xml"
LIMIT_BYTES = 20_000
"""Default limit of a request's body."""
# The host reads the function key from these parameters; they do not belong to the resource.
_OF_THE_HOST = frozenset({"code", "clientId"})
ParsedBody = TypeVar("ParsedBody", bound=BaseModel)


class Document(BaseModel):
    """Base class of all answers. `model_validate` also accepts objects with the same attributes."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


class Drawing(RootModel[str]):
    """An SVG document."""


class Accepted(Document):
    """Answer to a request that starts asynchronous work (202)."""

    id: str
    status_url: str


class ProblemDocument(BaseModel):
    """A problem document: https://www.rfc-editor.org/rfc/rfc9457."""

    type: str
    title: str
    status: int
    detail: str
    where: str | None = None


@dataclass(frozen=True)
class Answer:
    """An HTTP status with a JSON document, or with a text of another media type."""

    status: int
    document: Any
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    media_type: str = JSON_TYPE

    def to_response(self) -> HttpResponse:
        """The response as an object of Azure Functions."""
        is_text = isinstance(self.document, str)
        return HttpResponse(
            self.document if is_text else json.dumps(self.document),
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


class Parameters(BaseModel):
    """Base class of query parameters; unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class NoParameters(Parameters):
    """For resources without query parameters."""


Parsed = TypeVar("Parsed", bound=Parameters)


def parse_parameters(kind: type[Parsed], query: Mapping[str, str]) -> Parsed:
    """Parse the query parameters of a request.

    Raises:
        Problem: 400; it names the wrong parameter, and lists all valid ones.
    """
    values = {name: value for name, value in query.items() if name not in _OF_THE_HOST}
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = str(first["loc"][0]) if first["loc"] else "query"
        known = ", ".join(field.alias or name for name, field in kind.model_fields.items())
        raise invalid_request(
            f"parameter {where}: {first['msg']}; parameters are: {known or 'none'}", where=where
        ) from None


def parse_body(
    kind: type[ParsedBody], body: bytes, *, limit_bytes: int = LIMIT_BYTES
) -> ParsedBody:
    """Parse the body of a request; an empty body means `{}`.

    Raises:
        Problem: 413 if the body is too long; 400 if it is malformed, with the wrong key and a list
            of all valid ones.
    """
    check_length(body, limit_bytes)
    try:
        return kind.model_validate_json(body.strip() or b"{}")
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        known = ", ".join(_model_at(kind, first["loc"]).model_fields)
        raise invalid_request(f"{where}: {first['msg']}; keys are: {known}", where=where) from None


def check_length(body: bytes, limit_bytes: int = LIMIT_BYTES) -> None:
    """Check the length of a body.

    Raises:
        Problem: 413, it is too long.
    """
    if len(body) > limit_bytes:
        raise Problem(413, "invalid-request", f"a body of {len(body)} bytes is over {limit_bytes}")


def _model_at(kind: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The innermost model that contains a location in a body."""
    for part in location:
        field = kind.model_fields.get(str(part))
        types = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        if not inner:
            break
        kind = inner[0]
    return kind


def find_pipeline(pipelines: Mapping[str, Pipeline], name: str) -> Pipeline:
    """The deployed pipeline with this name.

    Raises:
        Problem: 404; it lists the deployed pipelines.
    """
    if name in pipelines:
        return pipelines[name]
    known = ", ".join(sorted(pipelines))
    raise Problem(404, "unknown-pipeline", f"there is no pipeline {name!r}; there are: {known}")


def next_url(path: str, parameters: Parameters, after: str | None) -> str | None:
    """Path and query of the page that begins after the key `after`; None if `after` is None."""
    if after is None:
        return None
    shown = parameters.model_dump(mode="json", by_alias=True, exclude_none=True) | {"after": after}
    return f"{path}?{urlencode(shown)}"
