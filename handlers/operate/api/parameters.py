"""Parse the parameters and bodies of requests by a model; unknown names are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, get_args
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, ValidationError

from handlers.operate.api.problem_details import Problem, invalid_request
from orchestrations.configuration.pipeline import Pipeline

LIMIT_BYTES = 20_000
"""Default limit of a request's body."""
# The host reads the function key from these parameters; they do not belong to the resource.
_OF_THE_HOST = frozenset({"code", "clientId"})


class Parameters(BaseModel):
    """Base class of query parameters; unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class NoParameters(Parameters):
    """For resources without query parameters."""


Parsed = TypeVar("Parsed", bound=Parameters)
ParsedBody = TypeVar("ParsedBody", bound=BaseModel)


def parse_parameters(kind: type[Parsed], given: Mapping[str, str]) -> Parsed:
    """Parse the query parameters of a request.

    Raises:
        Problem: 400; it names the wrong parameter, and lists all valid ones.
    """
    values = {name: value for name, value in given.items() if name not in _OF_THE_HOST}
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
