from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from localazure.errors import ConfigurationError
from localazure.functions.configuration.host_json import (
    HostOptions,
    QueueOptions,
    ServiceBusOptions,
)
from localazure.functions.durable.engine.versioning import FailureStrategy
from localazure.functions.durable.options import DurableOptions
from localazure.functions.errors import AppLoadError


def read(folder: Path, document: dict[str, Any]) -> HostOptions:
    (folder / "host.json").write_text(json.dumps({"version": "2.0", **document}, indent=1))
    return HostOptions.read(folder)


def test_settings_are_read(tmp_path: Path) -> None:
    options = read(
        tmp_path,
        {
            "functionTimeout": "00:10:00",
            "functions": ["one"],
            "extensionBundle": {"id": "x", "version": "[4.*, 5.0.0)"},
            "logging": {"logLevel": {"default": "Warning", "Function.hello": "Trace"}},
            "extensions": {
                "http": {
                    "routePrefix": "/",
                    "dynamicThrottlesEnabled": False,
                    "hsts": {"isEnabled": True, "maxAge": "10"},
                },
                "serviceBus": {"prefetchCount": 5, "maxAutoLockRenewalDuration": "00:01:00"},
                "durableTask": {"hubName": "hub"},
                "queues": {
                    "batchSize": 32,
                    "visibilityTimeout": "00:00:30",
                    "messageEncoding": "None",
                },
            },
        },
    )
    extensions = options.extensions
    assert options.function_timeout == timedelta(minutes=10)
    assert options.functions == ("one",)
    assert options.log_levels == {"default": logging.WARNING, "Function.hello": logging.DEBUG}
    assert extensions.http.route_prefix == ""
    assert extensions.service_bus == ServiceBusOptions(
        prefetch_count=5, max_auto_lock_renewal_duration=timedelta(minutes=1)
    )
    assert extensions.durable_task.hub_name == "hub"
    assert extensions.queues == QueueOptions(
        batch_size=32, visibility_timeout=timedelta(seconds=30), message_encoding="none"
    )
    assert extensions.queues.new_batch_threshold == 16
    assert not extensions.queues.is_base64


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": "1.0"}, "host.json:2: version: input should be '2.0', found \"1.0\""),
        ({"functionTimeout": "soon"}, "host.json:3: functionTimeout: 'soon' is not a duration"),
        ({"functionTimeout": "00:00:00"}, "functionTimeout: the least timeout is 00:00:01"),
        ({"functions": "one"}, "host.json:3: functions: input should be a valid tuple"),
        ({"extensions": []}, "host.json:3: extensions: "),
        (
            {"logging": {"logLevel": {"default": "Loud"}}},
            "host.json:4: logging.logLevel: default is 'Loud', not one of trace",
        ),
        (
            {"extensions": {"queues": {"batchSize": 33}}},
            "extensions.queues.batchSize: input should be less than or equal to 32, found 33",
        ),
        (
            {"extensions": {"queues": {"messageEncoding": "utf-7"}}},
            "extensions.queues.messageEncoding: input should be 'base64' or 'none'",
        ),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, document)
    assert "host.json" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["my-hub", "1hub", "ab", "x" * 46])
def test_names_that_no_task_hub_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="it must have 3 to 45 letters and digits"):
        DurableOptions(hub_name=name).check_hub_name()
    DurableOptions.model_validate(
        {"hubName": name, "storageProvider": {"type": "azureManaged"}}
    ).check_hub_name()


def test_a_folder_without_host_json_is_no_app(tmp_path: Path) -> None:
    with pytest.raises(AppLoadError, match="not the root of a Functions app"):
        HostOptions.read(tmp_path)


def test_an_environment_variable_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AzureFunctionsJobHost__logging__logLevel__default", "Error")
    monkeypatch.setenv("AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentCalls", "3")
    options = read(tmp_path, {"logging": {"logLevel": {"default": "Debug"}}})
    assert options.log_levels == {"default": logging.ERROR}
    assert options.extensions.service_bus.max_concurrent_calls == 3


def test_the_file_that_this_repository_deploys() -> None:
    extensions = HostOptions.read(Path(__file__).parents[5]).extensions
    durable, bus = extensions.durable_task, extensions.service_bus
    assert (durable.hub_name, durable.default_version) == ("landfall", "1.1")
    assert durable.version_failure_strategy is FailureStrategy.REJECT
    assert durable.max_concurrent_activity_functions == 10
    assert durable.max_concurrent_orchestrator_functions == 10
    assert (bus.prefetch_count, bus.max_concurrent_calls) == (0, 8)
    assert bus.max_auto_lock_renewal_duration == timedelta(minutes=10)
