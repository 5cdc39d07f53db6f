"""GET /api/openapi.json: the OpenAPI document, made from the models of requests and answers.

https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from handlers.operate.api.endpoint import Interface, interface
from handlers.operate.api.requests import (
    JSON_TYPE,
    PROBLEM_TYPE,
    SVG_TYPE,
    Accepted,
    Drawing,
    Parameters,
    ProblemDocument,
)
from handlers.operate.api.routes import ROUTES, Route

_REFERENCE = "#/components/schemas/{model}"


def openapi() -> Mapping[str, Any]:
    """Return the OpenAPI document of this API."""
    return describe_api()


@cache
def describe_api() -> Mapping[str, Any]:
    """Make the OpenAPI document, once; it leaves out its own route and the page's."""
    described = {route: interface(route.load()) for route in ROUTES if route.load() is not openapi}
    models = [ProblemDocument, *(each.answer for each in described.values())]
    models += [each.body for each in described.values() if each.body is not None]
    modes = [(model, "serialization") for model in dict.fromkeys(models)]
    _, schemas = models_json_schema(modes, ref_template=_REFERENCE)  # pyright: ignore[reportArgumentType] - the literal is widened
    paths: dict[str, dict[str, Any]] = {}
    for route, declared in described.items():
        operations = paths.setdefault(f"/api/{route.path}", {})
        operations[route.method.lower()] = _describe(route, declared)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Landfall", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "functionKey": {"type": "apiKey", "in": "header", "name": "x-functions-key"},
                "entra": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
        # Alternatives: app setting API_SIGN_IN selects one.
        "security": [{"functionKey": []}, {"entra": []}],
    }


def _describe(route: Route, declared: Interface) -> dict[str, Any]:
    status = HTTPStatus.ACCEPTED if declared.answer is Accepted else HTTPStatus.OK
    media_type = SVG_TYPE if declared.answer is Drawing else JSON_TYPE
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": (inspect.getdoc(route.load()) or "").partition("\n")[0].rstrip("."),
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", route.path)
            ),
            *_query_parameters(declared.parameters),
        ],
        "responses": {
            str(status.value): {
                "description": status.phrase,
                "content": {media_type: {"schema": _reference(declared.answer)}},
            },
            "default": {
                "description": "A problem",
                "content": {PROBLEM_TYPE: {"schema": _reference(ProblemDocument)}},
            },
        },
    }
    if route.method == "GET":
        described["responses"]["304"] = {"description": HTTPStatus.NOT_MODIFIED.phrase}
    if declared.body is not None:
        described["requestBody"] = {"content": {JSON_TYPE: {"schema": _reference(declared.body)}}}
    if route.signed:
        described["security"] = []
    return described


def _query_parameters(parameters: type[Parameters]) -> list[dict[str, Any]]:
    schema = parameters.model_json_schema(by_alias=True)
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": described}
        for name, described in schema.get("properties", {}).items()
    ]


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}
