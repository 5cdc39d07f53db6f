"""App settings: local.settings.json, the process environment, and references in bindings.

Source: https://learn.microsoft.com/azure/azure-functions/functions-develop-local#local-settings-file
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_pascal

from localazure.configuration_file import ConfigurationModel, read_configuration
from localazure.functions.errors import AppLoadError
from localazure.functions.http.cors import CorsPolicy

FILE_NAME = "local.settings.json"
TIME_ZONE_SETTING = "WEBSITE_TIME_ZONE"

_REFERENCE = re.compile(r"%([\w.:-]+)%")


class _ConnectionString(ConfigurationModel):
    model_config = ConfigDict(alias_generator=to_pascal, extra="ignore")

    connection_string: str


class _Host(ConfigurationModel):
    model_config = ConfigDict(alias_generator=to_pascal, extra="ignore")

    local_http_port: int | None = None
    origins: str = Field(default="", alias="CORS")
    cors_credentials: bool = Field(default=False, alias="CORSCredentials")

    @model_validator(mode="after")
    def _cors_is_a_policy(self) -> Self:
        _ = self.cors
        return self

    @property
    def cors(self) -> CorsPolicy:
        """The web pages that may call."""
        return CorsPolicy.parse(self.origins, allows_credentials=self.cors_credentials)


class LocalSettings(ConfigurationModel):
    """local.settings.json, as func reads it: unknown keys belong to other tools.

    A missing file is the same as an empty one.
    """

    model_config = ConfigDict(alias_generator=to_pascal, extra="ignore")

    is_encrypted: bool = False
    # Like .NET's configuration, func accepts scalars; other values are not app settings.
    values: dict[str, bool | int | float | str] = Field(default_factory=dict)
    connection_strings: dict[str, _ConnectionString | str] = Field(default_factory=dict)
    host: _Host = Field(default_factory=_Host)

    @field_validator("is_encrypted")
    @classmethod
    def _is_readable(cls, value: bool) -> bool:  # noqa: FBT001 - a validator's value
        if value:
            raise ValueError("the file is encrypted; run `func settings decrypt` on it first")
        return value

    @classmethod
    def read(cls, app: Path) -> LocalSettings:
        """Read an app folder's file.

        Raises:
            ConfigurationError: the file is malformed or encrypted; the text contains no values.
        """
        try:
            return read_configuration(app / FILE_NAME, cls, shows_values=False)
        except FileNotFoundError:
            return cls()

    @property
    def app_settings(self) -> dict[str, str]:
        """The app settings, including connection strings as `ConnectionStrings:NAME`."""
        settings = {name: _as_text(value) for name, value in self.values.items()}
        for name, one in self.connection_strings.items():
            text = one.connection_string if isinstance(one, _ConnectionString) else one
            settings[f"ConnectionStrings:{name}"] = text
        return settings


def _as_text(value: bool | float | str) -> str:  # noqa: FBT001 - a scalar of JSON
    return str(value).lower() if isinstance(value, bool) else str(value)


def resolve_references(text: str, settings: Mapping[str, str]) -> str:
    """Replace each `%NAME%` by the app setting NAME.

    Raises:
        ValueError: the setting does not exist.

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
    """Whether an app setting disables a function.

    Source: https://learn.microsoft.com/azure/azure-functions/disable-function
    """
    names = (f"AzureWebJobs.{function_name}.Disabled", f"AzureWebJobs_{function_name}_Disabled")
    return any(settings.get(name, "").lower() in {"true", "1"} for name in names)


@contextlib.contextmanager
def process_environment(values: Mapping[str, str]) -> Generator[None]:
    """Add values to the process environment; restore it on exit."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def time_zone(settings: Mapping[str, str]) -> tzinfo:
    """The time zone of NCRONTAB expressions: WEBSITE_TIME_ZONE, or UTC by default, as on Azure.

    Raises:
        AppLoadError: the time zone does not exist.
    """
    name = settings.get(TIME_ZONE_SETTING)
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise AppLoadError(
            f"the app setting {TIME_ZONE_SETTING} is {name!r}, which is not a known time zone; "
            "use a name such as Europe/Berlin"
        ) from None
