"""The file `storage.json`: the containers that exist from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from localazure.configuration_file import ConfigurationModel, read_configuration

# https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
_ContainerName = Annotated[
    str,
    StringConstraints(
        min_length=3, max_length=63, pattern=r"^(\$(root|web|logs)|[a-z0-9]+(-[a-z0-9]+)*)$"
    ),
]


class StorageConfiguration(ConfigurationModel):
    """Content of `storage.json`."""

    containers: tuple[_ContainerName, ...] = ()


def load_containers(path: Path) -> tuple[str, ...]:
    """Names of the containers to create; none without a file.

    Raises:
        ConfigurationError: the file is not valid.
    """
    if not path.exists():
        return ()
    return read_configuration(path, StorageConfiguration).containers
