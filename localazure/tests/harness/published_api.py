"""Checks requests and responses against Microsoft's published OpenAPI (Swagger 2.0) documents.

The documents are in a clone of github.com/Azure/azure-rest-api-specs; the environment variable
`AZURE_REST_API_SPECS` is its path. A request of an API version that is missing there is checked
against the newest version that has the operation.

JSON Schema has no discriminators: a reference to a type with a discriminator becomes this type and,
by the discriminator's value, the derived type. Null is equivalent to a missing field, as in the
SDKs. Unknown fields are not reported, because even base types of other types are closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
import requests
from jsonschema import Draft7Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

SPECIFICATIONS_VARIABLE = "AZURE_REST_API_SPECS"
_PROVIDER = (
    "specification/machinelearningservices/resource-manager/Microsoft.MachineLearningServices"
)
# Without local requests (`/admin`) and other APIs at the same port (`/history`, metrics).
_RECORDED = re.compile(
    r"^https://[^/]+/subscriptions/(?!.*OperationsStatus)[^?]*/Microsoft\.MachineLearningServices/"
    r"(?![^?]*/Microsoft\.Insights/)",
    re.IGNORECASE,
)
_DERIVED = ".ByDiscriminator"

# Accepted differences: side and field → reason. Also in localazure/docs/machine-learning.md.
ACCEPTED = {
    ("request", "properties.objective.goal"): "the SDK sends it in lower case",
    ("request", "properties.authMode"): "the SDK sends aadToken for AADToken",
    ("request", "properties.properties.hash_version"): "the SDK sends a number",
    ("answer", "properties.credentials"): "secrets are required, and no GET of Azure shows them",
}


@dataclass(frozen=True)
class Exchange:
    """One request to ARM and its response; None for a body that is not JSON."""

    method: str
    url: str
    request: Any
    status: int
    answer: Any


@contextmanager
def recorded(exchanges: list[Exchange]) -> Generator[None]:
    """Record this process's requests to Azure ML's part of ARM while the context lasts."""
    send = requests.Session.send

    def record(
        session: requests.Session, request: requests.PreparedRequest, **options: Any
    ) -> requests.Response:
        response = send(session, request, **options)
        if _RECORDED.search(request.url or ""):
            exchange = Exchange(
                str(request.method),
                str(request.url),
                _json(request.body),
                response.status_code,
                _json(response.content),
            )
            exchanges.append(exchange)
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "send", record)
        yield


def _json(body: Any) -> Any:
    return json.loads(body) if body else None


@dataclass(frozen=True)
class Operation:
    """One operation of one document."""

    id: str
    method: str
    path: re.Pattern[str]
    uri: str
    """The URI of its document, with the JSON pointer to the operation."""
    definition: dict[str, Any]


@dataclass
class PublishedApi:
    """The OpenAPI documents below a folder."""

    folder: Path
    _documents: dict[str, Resource[Any]] = field(default_factory=dict[str, Resource[Any]])

    def deviations(self, exchange: Exchange) -> Iterator[str]:
        """Yield the differences from the specification, with operation, path and field."""
        parts = urlsplit(exchange.url)
        version = parse_qs(parts.query).get("api-version", [""])[0]
        operation = self._find(exchange.method, parts.path, version)
        if operation is None:
            yield f"{exchange.method} {parts.path}: no version of the API has this operation"
            return
        where = f"{operation.id} ({exchange.method} {parts.path}, {version})"
        for index, parameter in enumerate(operation.definition.get("parameters") or ()):
            is_refused = exchange.status >= HTTPStatus.BAD_REQUEST
            if parameter.get("in") == "body" and not is_refused and exchange.request is not None:
                schema = f"{operation.uri}/parameters/{index}/schema"
                yield from self._check(where, "request", schema, exchange.request)
        responses: dict[str, Any] = operation.definition["responses"]
        status = str(exchange.status)
        if status not in responses and exchange.status >= HTTPStatus.BAD_REQUEST:
            status = "default"
        if status not in responses:
            yield f"{where}: status {status} is not one of {', '.join(responses)}"
        elif "schema" in responses[status]:
            schema = f"{operation.uri}/responses/{status}/schema"
            yield from self._check(where, "answer", schema, exchange.answer)

    def _check(self, where: str, side: str, schema: str, body: Any) -> Iterator[str]:
        registry: Registry[Any] = Registry(retrieve=self._document)  # pyright: ignore[reportCallIssue] - attrs' alias
        validator = Draft7Validator({"$ref": schema}, registry=registry)
        for error in validator.iter_errors(_without_nulls(body)):
            name = ".".join(str(part) for part in error.absolute_path if not isinstance(part, int))
            if (side, name.removeprefix("value.")) not in ACCEPTED:
                yield f"{where}: {side}: {name or 'body'}: {error.message[:300]}"

    def _find(self, method: str, path: str, version: str) -> Operation | None:
        """Return the operation in this version, else in the newest version that has it."""
        found = [
            (each == version, each, operation)
            for each, operations in self._operations.items()
            for operation in operations
            if operation.method == method.lower() and operation.path.match(path)
        ]
        return max(found, key=lambda each: each[:2])[2] if found else None

    @cached_property
    def _operations(self) -> dict[str, list[Operation]]:
        """Operations by API version."""
        operations: dict[str, list[Operation]] = {}
        for document in (self.folder / _PROVIDER).glob("*/20*/*.json"):
            for path, methods in json.loads(document.read_text()).get("paths", {}).items():
                pattern = "[^/]+".join(map(re.escape, re.split(r"\{[^}]*\}", path)))
                pointer = quote(path.replace("~", "~0").replace("/", "~1"), safe="~")
                operations.setdefault(document.parent.name, []).extend(
                    Operation(
                        id=definition["operationId"],
                        method=method,
                        path=re.compile(f"{pattern}$", re.IGNORECASE),
                        uri=f"{document.absolute().as_uri()}#/paths/{pointer}/{method}",
                        definition=definition,
                    )
                    for method, definition in methods.items()
                )
        return operations

    def _document(self, uri: str) -> Resource[Any]:
        """Return a document in which references to a type include its derived types."""
        if uri not in self._documents:
            contents: Any = json.loads(Path(unquote(urlsplit(uri).path)).read_text())
            definitions: dict[str, Any] = contents.get("definitions") or {}
            bases = {name for name in definitions if "discriminator" in definitions[name]}
            derived = {f"{name}{_DERIVED}": _any_of_derived(name, definitions) for name in bases}
            for name, definition in definitions.items():
                definitions[name] = {
                    key: value if key == "allOf" else _with_derived(value, bases)
                    for key, value in definition.items()
                    if key != "additionalProperties" or value is not False
                }
            contents = {**contents, "paths": _with_derived(contents.get("paths") or {}, bases)}
            contents["definitions"] = {**definitions, **derived}
            self._documents[uri] = Resource(contents, DRAFT7)
        return self._documents[uri]


def _any_of_derived(base: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a base type and, by the discriminator's value, of the derived types."""
    discriminator = definitions[base]["discriminator"]
    reference = {"$ref": f"#/definitions/{base}"}
    branches = [
        {
            "if": {
                "properties": {
                    discriminator: {"const": definition.get("x-ms-discriminator-value", name)}
                },
                "required": [discriminator],
            },
            "then": {"$ref": f"#/definitions/{name}"},
        }
        for name, definition in definitions.items()
        if reference in (definition.get("allOf") or ())
    ]
    return {"allOf": [reference, *branches]}


def _with_derived(schema: Any, bases: set[str]) -> Any:
    """Return the schema; references to a type include its derived types."""
    if isinstance(schema, list):
        return [_with_derived(each, bases) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    document = cast("dict[str, Any]", schema)
    reference = document.get("$ref")
    if isinstance(reference, str) and reference.removeprefix("#/definitions/") in bases:
        return {"$ref": f"{reference}{_DERIVED}"}
    return {
        key: _with_derived(value, bases)
        for key, value in document.items()
        if key != "additionalProperties" or value is not False
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: _without_nulls(entry) for key, entry in entries.items() if entry is not None}
    if isinstance(value, list):
        return [_without_nulls(entry) for entry in cast("list[Any]", value)]
    return value
