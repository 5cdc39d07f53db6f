from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localazure.errors import ConfigurationError
from localazure.functions.configuration.app_settings import (
    LocalSettings,
    is_disabled,
)
from localazure.functions.http.cors import CorsPolicy


def read(folder: Path, document: dict[str, Any]) -> LocalSettings:
    (folder / "local.settings.json").write_text(json.dumps(document))
    return LocalSettings.read(folder)


def test_the_file(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        {
            "IsEncrypted": False,
            "Values": {"A": "text", "B": True, "C": 3},
            "ConnectionStrings": {"db": "x", "other": {"ConnectionString": "y"}},
            "Host": {"LocalHttpPort": 8080, "CORS": "https://a,https://b", "CORSCredentials": True},
        },
    )
    assert settings.host.local_http_port == 8080
    assert settings.host.cors == CorsPolicy(
        frozenset({"https://a", "https://b"}), allows_credentials=True
    )
    assert settings.app_settings == {
        "A": "text",
        "B": "true",
        "C": "3",
        "ConnectionStrings:db": "x",
        "ConnectionStrings:other": "y",
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"IsEncrypted": True, "Values": {}}, "is encrypted"),
        ({"Values": {"A": ["secret"]}}, "local.settings.json:1: Values.A: input should be a valid"),
        ({"Values": ["x"]}, "Values: input should be a valid dictionary"),
        ({"Host": {"LocalHttpPort": "x"}}, "Host.LocalHttpPort: input should be a valid integer"),
        ({"Host": {"CORS": "*", "CORSCredentials": True}}, "origins by name, not *"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, document)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"AzureWebJobs.hello.Disabled": "true"}, True),
        ({"AzureWebJobs_hello_Disabled": "1"}, True),
        ({"AzureWebJobs.hello.Disabled": "false"}, False),
        ({"AzureWebJobs.other.Disabled": "true"}, False),
        ({}, False),
    ],
)
def test_disabled_functions(settings: dict[str, str], expected: bool) -> None:  # noqa: FBT001 - a table
    assert is_disabled("hello", settings) is expected
