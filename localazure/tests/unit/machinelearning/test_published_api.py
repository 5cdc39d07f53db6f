"""The check against published specifications, with a specification made for the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.published_api import Exchange, PublishedApi

ROOT = "specification/machinelearningservices/resource-manager/Microsoft.MachineLearningServices"
OLD = {
    "paths": {
        "/workspaces/{name}/jobs/{id}": {
            "put": {
                "operationId": "Jobs_Put",
                "parameters": [
                    {"in": "path", "name": "id"},
                    {"in": "body", "name": "body", "schema": {"$ref": "#/definitions/Job"}},
                ],
                "responses": {
                    "201": {"schema": {"$ref": "#/definitions/Job"}},
                    "default": {"schema": {"$ref": "../../types.json#/definitions/Error"}},
                },
            }
        }
    },
    "definitions": {
        "Job": {"properties": {"properties": {"$ref": "#/definitions/Base"}}},
        "Base": {
            "discriminator": "jobType",
            "required": ["jobType"],
            "properties": {"jobType": {"enum": ["Command"]}, "tags": {"type": "object"}},
        },
        "CommandJob": {
            "x-ms-discriminator-value": "Command",
            "allOf": [{"$ref": "#/definitions/Base"}],
            "required": ["command"],
            "properties": {"command": {"type": "string"}, "next": {"$ref": "#/definitions/Job"}},
        },
    },
}
TYPES = {"definitions": {"Error": {"required": ["error"]}}}


@pytest.fixture
def api(tmp_path: Path) -> PublishedApi:
    new: dict[str, Any] = json.loads(json.dumps(OLD))
    new["definitions"]["CommandJob"]["required"] = ["command", "environmentId"]
    for version, document in (("preview/2023-04-01-preview", OLD), ("stable/2024-04-01", new)):
        folder = tmp_path / ROOT / version
        folder.mkdir(parents=True)
        (folder / "mfe.json").write_text(json.dumps(document))
    (tmp_path / ROOT / "types.json").write_text(json.dumps(TYPES))
    return PublishedApi(tmp_path)


def deviations(
    api: PublishedApi,
    answer: Any,
    *,
    status: int = 201,
    version: str = "2023-04-01-preview",
    path: str = "/Workspaces/w/jobs/j",
) -> list[str]:
    url = f"https://localhost:1{path}?api-version={version}"
    request = {"properties": {"jobType": "Command", "command": "ls", "environmentId": "e"}}
    return list(api.deviations(Exchange("PUT", url, request, status, answer)))


WELL = {"properties": {"jobType": "Command", "command": "ls", "tags": None}}
WRONG = {"properties": {"jobType": "Command", "command": "ls", "next": {"properties": {}}}}


def test_what_follows_the_specification_passes(api: PublishedApi) -> None:
    assert deviations(api, WELL) == []
    assert deviations(api, {"error": {}}, status=404) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"answer": WRONG}, "answer: properties.next.properties: 'jobType' is a required"),
        ({"answer": {"properties": {"jobType": "Command", "command": 1}}}, "properties.command: 1"),
        ({"version": "2024-04-01"}, "properties: 'environmentId' is a required property"),
        ({"version": "2099-01-01"}, "properties: 'environmentId' is a required property"),
        ({"status": 202}, "status 202 is not one of 201, default"),
        ({"status": 404}, "answer: body: 'error' is a required property"),
        ({"path": "/workspaces/w/jobs"}, "no version of the API has this operation"),
    ],
)
def test_a_deviation_names_operation_path_and_field(
    api: PublishedApi, changes: dict[str, Any], expected: str
) -> None:
    arguments: dict[str, Any] = {"answer": WELL, **changes}
    (found,) = deviations(api, **arguments)
    assert expected in found
    assert changes.get("path", "/Workspaces/w/jobs/j") in found
