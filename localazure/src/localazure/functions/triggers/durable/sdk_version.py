"""Which versions of the Durable Functions SDK this host runs."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from localazure.functions.errors import AppLoadError

DISTRIBUTION: Final = "azure-functions-durable"
_REQUIREMENT: Final = ">=1.2.9,<3"  # pyproject.toml says the same to installers
SUPPORTED: Final = SpecifierSet(_REQUIREMENT)
_TESTED: Final = "1.2.9 to 1.7 and 2.0"


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


def speaks_protocol() -> bool:
    """Whether the SDK speaks the protocol of the Durable Task SDKs, as from version 2 on."""
    return Version(metadata.version(DISTRIBUTION)).major > 1
