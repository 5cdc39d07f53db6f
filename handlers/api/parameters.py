"""Parameters of requests: parsed by a model, and refused where they are not in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, ValidationError

from handlers.triggers.problem_details import Problem
from orchestrations.pipeline import Pipeline

# The host authorises by them; they are none of the resource.
_OF_THE_HOST = frozenset({"code", "clientId"})


class Parameters(BaseModel):
    """Base of all parameters: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class NoParameters(Parameters):
    """Of resources that take none."""


Parsed = TypeVar("Parsed", bound=Parameters)


def parse_parameters(kind: type[Parsed], given: Mapping[str, str]) -> Parsed:
    """The parameters of a request.

    Raises:
        Problem: 400; it names the parameter, and those that there are.
    """
    values = {name: value for name, value in given.items() if name not in _OF_THE_HOST}
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = str(first["loc"][0]) if first["loc"] else "query"
        known = ", ".join(field.alias or name for name, field in kind.model_fields.items())
        raise Problem(
            400,
            "invalid-request",
            f"parameter {where}: {first['msg']}; parameters are: {known or 'none'}",
            where=where,
        ) from None


def find_pipeline(pipelines: Mapping[str, Pipeline], name: str) -> Pipeline:
    """The deployed pipeline of that name.

    Raises:
        Problem: 404; it names those that there are.
    """
    if name in pipelines:
        return pipelines[name]
    known = ", ".join(sorted(pipelines))
    raise Problem(404, "unknown-pipeline", f"there is no pipeline {name!r}; there are: {known}")


def next_url(path: str, parameters: Parameters, after: str | None) -> str | None:
    """The address of the page that begins after something; None when there is none."""
    if after is None:
        return None
    shown = parameters.model_dump(mode="json", by_alias=True, exclude_none=True) | {"after": after}
    return f"{path}?{urlencode(shown)}"
