"""Which versions of the Durable Functions SDK this host runs."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from packaging.specifiers import SpecifierSet

from localazure.functions.errors import AppLoadError

DISTRIBUTION: Final = "azure-functions-durable"
# Version 2 is a new SDK on top of durabletask: it talks gRPC and protobuf to the host.
_REQUIREMENT: Final = ">=1.2.9,<2"  # pyproject.toml says the same to installers
SUPPORTED: Final = SpecifierSet(_REQUIREMENT)
_TESTED: Final = "1.2.9 to 1.7"


def require_supported_version() -> None:
    """Refuse an SDK that this host cannot run.

    The version is that of the distribution which the import path has first, so the app's folder
    is on the path already.

    Raises:
        AppLoadError: another version is installed; names it and those that are supported.
    """
    installed = metadata.version(DISTRIBUTION)
    if not SUPPORTED.contains(installed, prereleases=True):
        raise AppLoadError(
            f"this app's Durable Functions SDK is {DISTRIBUTION} {installed}, and this host "
            f"supports {_TESTED}: install '{DISTRIBUTION}{_REQUIREMENT}' in its place"
        )
