"""Write `schemas/*.json` again from Microsoft's own types. Needed only for a newer API version.

    pip install msmcp-azure
    python -m infra.check.refresh_schemas $(command -v azmcp)

`azmcp` (Azure MCP Server, MIT License, Copyright Microsoft) embeds the types of
Azure/bicep-types-az and prints the newest stable version of one: `azmcp bicepschema get
--resource-type T`. This module keeps what can be set, without descriptions. Types that it lacks
are in `schemas/by_hand/`, with the properties that we set, written from the models of
azure-mgmt-monitor 7.0.0, azure-mgmt-privatedns 2.0.0 and azure-mgmt-durabletask 1.1.0.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.check.bicep_file import BicepFile
from infra.check.schemas import FOLDER, file_name

READ_ONLY = "ReadOnly"
REQUIRED = "Required"


def main(azmcp: str, root: Path) -> None:
    """Fetch the types of all resources under `root/infra`."""
    files = [BicepFile.read(path) for path in sorted((root / "infra").glob("*.bicep"))]
    types = {each.type for file in files for each in file.resources}
    for resource_type in sorted(types):
        if (FOLDER / "by_hand" / file_name(resource_type)).exists():
            continue
        schema = compact(fetch(azmcp, resource_type))
        target = FOLDER / file_name(resource_type)
        target.write_text(json.dumps(schema, sort_keys=True, separators=(",", ":")) + "\n")
        print(f"{resource_type} {schema['apiVersion']}")  # noqa: T201 - a command line


def fetch(azmcp: str, resource_type: str) -> Sequence[Mapping[str, Any]]:
    """The types of one resource as `azmcp` prints them.

    Raises:
        subprocess.CalledProcessError: it has no such type.
    """
    offline = {"AZURE_MCP_COLLECT_TELEMETRY": "false", "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
    printed = subprocess.run(
        [azmcp, "bicepschema", "get", "--resource-type", resource_type],
        env={**os.environ, **offline},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return json.loads(printed)["results"]["BicepSchemaResult"]


def compact(types: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Only what a file can set: no descriptions, no outputs, no type that nothing refers to."""
    (resource,) = (each for each in types if each["$type"] == "Resource")
    objects = {each["name"]: each for each in types if each["$type"].endswith("Object")}
    kept: dict[str, Any] = {"": _type(resource["bodyType"])}
    waiting = list(_references(kept[""]))
    while waiting:
        name = waiting.pop()
        if name in objects and name not in kept:
            kept[name] = _type(objects[name])
            waiting += _references(kept[name])
    resource_type, _, version = resource["name"].partition("@")
    return {"type": resource_type, "apiVersion": version, "types": kept}


def _type(described: Mapping[str, Any]) -> dict[str, Any]:
    if described["$type"] == "DiscriminatedObject":
        discriminator = described["discriminator"]
        base = _properties(described["baseProperties"])
        elements: dict[str, Any] = {}
        for element in described["elements"]:
            own = _properties(element["properties"])
            elements[own[discriminator]["type"]] = {"properties": {**base, **own}}
        return {"discriminator": discriminator, "elements": elements}
    compacted: dict[str, Any] = {"properties": _properties(described["properties"])}
    if described.get("additionalPropertiesType"):
        compacted["additional"] = described["additionalPropertiesType"]
    return compacted


def _properties(described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    compacted: dict[str, Any] = {}
    for each in described:
        flags = each.get("flags") or ""
        if READ_ONLY in flags:
            compacted[each["name"]] = {"readOnly": True}
            continue
        compacted[each["name"]] = {"type": each["type"]}
        if REQUIRED in flags:
            compacted[each["name"]]["required"] = True
    return compacted


def _references(kept: Mapping[str, Any]) -> Iterator[str]:
    objects = [kept, *kept.get("elements", {}).values()]
    for each in objects:
        types = [each.get("additional")]
        types += [value.get("type") for value in each.get("properties", {}).values()]
        yield from (re.sub(r"(\[\])+$", "", text) for text in types if text)


if __name__ == "__main__":
    main(sys.argv[1], Path(__file__).parents[1])
