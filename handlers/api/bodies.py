"""Bodies of requests: parsed by a model, and refused where they are not as it says."""

from __future__ import annotations

from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError

from handlers.triggers.problem_details import Problem

LIMIT_BYTES = 20_000
Parsed = TypeVar("Parsed", bound=BaseModel)


def parse_body(kind: type[Parsed], body: bytes, *, limit_bytes: int = LIMIT_BYTES) -> Parsed:
    """The body of a request; an empty one stands for `{}`.

    Raises:
        Problem: 413 when it is too long, 400 when it is malformed; it names the key, and those that
            there are.
    """
    check_length(body, limit_bytes)
    try:
        return kind.model_validate_json(body.strip() or b"{}")
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        known = ", ".join(_model_at(kind, first["loc"]).model_fields)
        raise Problem(
            400, "invalid-request", f"{where}: {first['msg']}; keys are: {known}", where=where
        ) from None


def check_length(body: bytes, limit_bytes: int = LIMIT_BYTES) -> None:
    """Refuse a body that is too long.

    Raises:
        Problem: 413.
    """
    if len(body) > limit_bytes:
        raise Problem(413, "invalid-request", f"a body of {len(body)} bytes is over {limit_bytes}")


def _model_at(kind: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The innermost model on the way to a place in a body."""
    for part in location:
        field = kind.model_fields.get(str(part))
        types = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        if not inner:
            break
        kind = inner[0]
    return kind
