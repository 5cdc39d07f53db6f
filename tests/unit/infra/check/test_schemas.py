"""The data on Azure's types: what of Microsoft's own is kept."""

from __future__ import annotations

import json

from infra.check.bicep_file import BicepFile
from infra.check.refresh_schemas import compact
from infra.check.schemas import FOLDER
from tests.unit.infra.check.test_check import ROOT

TYPES = [
    {
        "$type": "Resource",
        "name": "Microsoft.X/things@2025-01-01",
        "bodyType": {
            "$type": "Object",
            "name": "Microsoft.X/things",
            "properties": [
                {"name": "id", "type": "string", "flags": "ReadOnly", "description": "long"},
                {"name": "name", "type": "string", "flags": "Required, DeployTimeConstant"},
                {"name": "tags", "type": "Tags"},
                {"name": "targets", "type": "Target[]"},
            ],
        },
    },
    {"$type": "Object", "name": "Tags", "properties": [], "additionalPropertiesType": "string"},
    {
        "$type": "DiscriminatedObject",
        "name": "Target",
        "discriminator": "kind",
        "baseProperties": [{"name": "weight", "type": "int"}],
        "elements": [
            {
                "$type": "Object",
                "name": "QueueTarget",
                "properties": [{"name": "kind", "type": "Queue", "flags": "Required"}],
            }
        ],
    },
    {"$type": "Object", "name": "Forgotten", "properties": []},
    {"$type": "ResourceInstanceFunction", "name": "listKeys"},
]


def test_a_type_is_kept_without_what_a_file_cannot_use() -> None:
    assert compact(TYPES) == {
        "type": "Microsoft.X/things",
        "apiVersion": "2025-01-01",
        "types": {
            "": {
                "properties": {
                    "id": {"readOnly": True},
                    "name": {"type": "string", "required": True},
                    "tags": {"type": "Tags"},
                    "targets": {"type": "Target[]"},
                }
            },
            "Tags": {"properties": {}, "additional": "string"},
            "Target": {
                "discriminator": "kind",
                "elements": {
                    "Queue": {
                        "properties": {
                            "weight": {"type": "int"},
                            "kind": {"type": "Queue", "required": True},
                        }
                    }
                },
            },
        },
    }


def test_there_is_data_for_the_types_that_we_use_and_no_other() -> None:
    used = {
        each.type.lower()
        for path in (ROOT / "infra").glob("*.bicep")
        for each in BicepFile.read(path).resources
    }
    kept = {
        json.loads(path.read_text("utf-8"))["type"].lower() for path in FOLDER.glob("**/*.json")
    }
    assert kept == used
