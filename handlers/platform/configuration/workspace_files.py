"""Read and check `workspaces.yml`, in the folder of the pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from handlers.platform.configuration.located_yaml import LocatedYaml, read_text
from orchestrations.configuration.workspaces import Destination, Workspaces
from orchestrations.errors import InvalidWorkspaces

WORKSPACES_FILE = "workspaces.yml"


def load_destinations(folder: Path) -> Mapping[str, Destination]:
    """The workspaces that models are promoted to, by name; none without `workspaces.yml`.

    Raises:
        InvalidWorkspaces: it is unreadable or breaks the schema; names file, line, key and value.
    """
    file = folder / WORKSPACES_FILE
    if not file.exists():
        return {}
    text = read_text(file, invalid=InvalidWorkspaces)
    shape = "it is a mapping with the key 'workspaces'"
    parsed = LocatedYaml.parse(file, text, shape=shape, invalid=InvalidWorkspaces)
    return {each.name: each for each in parsed.validate(Workspaces).workspaces}
