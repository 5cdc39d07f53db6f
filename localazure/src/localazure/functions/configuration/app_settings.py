"""App settings: local.settings.json, the process environment, and what bindings refer to by name.

Source: https://learn.microsoft.com/azure/azure-functions/functions-develop-local#local-settings-file
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from localazure.functions.configuration.json_file import read_object
from localazure.functions.errors import AppLoadError
from localazure.functions.http.cors import CorsPolicy

FILE_NAME = "local.settings.json"

_REFERENCE = re.compile(r"%([\w.:-]+)%")


@dataclass(frozen=True)
class LocalSettings:
    """What local.settings.json says; an absent file says nothing."""

    values: dict[str, str] = field(default_factory=dict[str, str])
    """App settings, connection strings among them as `ConnectionStrings:NAME`."""
    http_port: int | None = None
    """`Host.LocalHttpPort`."""
    cors: CorsPolicy = field(default_factory=CorsPolicy)
    """`Host.CORS` and `Host.CORSCredentials`."""

    @classmethod
    def read(cls, app: Path) -> LocalSettings:
        """Read an app folder's file.

        Raises:
            AppLoadError: the file is malformed or encrypted.
        """
        path = app / FILE_NAME
        try:
            document = read_object(path)
        except FileNotFoundError:
            return cls()
        if document.get("IsEncrypted"):
            raise AppLoadError(f"{path} is encrypted; run `func settings decrypt` on it first")
        values = {
            name: _as_text(path, name, value) for name, value in _section(path, document, "Values")
        }
        for name, value in _section(path, document, "ConnectionStrings"):
            text = value.get("ConnectionString") if isinstance(value, dict) else value
            values[f"ConnectionStrings:{name}"] = _as_text(path, name, text)
        host = dict(_section(path, document, "Host"))
        port = host.get("LocalHttpPort")
        if port is not None and not isinstance(port, int):
            raise AppLoadError(f"{path}: Host.LocalHttpPort is {port!r}, not a number")
        credentials = str(host.get("CORSCredentials", False)).lower() == "true"
        try:
            cors = CorsPolicy.parse(str(host.get("CORS") or ""), allows_credentials=credentials)
        except ValueError as error:
            raise AppLoadError(f"{path}: Host: {error}") from None
        return cls(values, port, cors)


def _section(path: Path, document: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    section = document.get(name) or {}
    if not isinstance(section, dict):
        raise AppLoadError(f"{path}: {name} is not an object")
    return list(cast("dict[str, Any]", section).items())


def _as_text(path: Path, name: str, value: Any) -> str:
    # func takes scalars as .NET's configuration does; anything else never reaches an app setting.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise AppLoadError(f"{path}: the value of {name} is not a string")


class AppSettings(Mapping[str, str]):
    """App settings, whose names are found in any case, as by .NET's configuration."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._names = {name.casefold(): name for name in self._values}

    def __getitem__(self, name: str) -> str:
        """The value of a setting; raises KeyError."""
        return self._values[self._names[name.casefold()]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def resolve_references(text: str, settings: Mapping[str, str]) -> str:
    """Replace each `%NAME%` by the app setting NAME.

    Raises:
        ValueError: there is no such setting.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-expressions-patterns
    """

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in settings:
            raise ValueError(
                f"%{match[1]}% refers to an app setting that is not set; "
                f"set it in {FILE_NAME} or in the environment"
            )
        return settings[match[1]]

    return _REFERENCE.sub(value_of, text)


def is_disabled(function_name: str, settings: Mapping[str, str]) -> bool:
    """Whether an app setting switches a function off.

    Source: https://learn.microsoft.com/azure/azure-functions/disable-function
    """
    names = (f"AzureWebJobs.{function_name}.Disabled", f"AzureWebJobs_{function_name}_Disabled")
    return any(settings.get(name, "").lower() in {"true", "1"} for name in names)


@contextlib.contextmanager
def process_environment(values: Mapping[str, str]) -> Generator[None]:
    """Have these in the process environment, which is as it was before afterwards."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def time_zone(settings: Mapping[str, str]) -> tzinfo:
    """The zone of NCRONTAB expressions: UTC as on Azure, unless WEBSITE_TIME_ZONE says another.

    Raises:
        AppLoadError: there is no such zone.
    """
    name = settings.get("WEBSITE_TIME_ZONE")
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise AppLoadError(
            f"the app setting WEBSITE_TIME_ZONE is {name!r}, which is no time zone known here; "
            "use a name such as Europe/Berlin"
        ) from None
