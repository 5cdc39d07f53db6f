from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from localazure.functions.configuration.host_json import (
    BlobOptions,
    HostOptions,
    HttpOptions,
    QueueOptions,
)
from localazure.functions.errors import AppLoadError


def read(folder: Path, document: dict[str, Any]) -> HostOptions:
    (folder / "host.json").write_text(json.dumps({"version": "2.0", **document}))
    return HostOptions.read(folder)


def test_defaults_are_those_of_the_real_host(tmp_path: Path) -> None:
    options = read(tmp_path, {})
    assert options.http == HttpOptions(route_prefix="api")
    assert options.function_timeout == timedelta(minutes=30)
    assert options.service_bus.max_concurrent_calls == 16
    assert options.service_bus.max_auto_lock_renewal == timedelta(minutes=5)
    assert options.service_bus.auto_complete_messages
    assert options.warnings == ()


def test_what_is_set_is_heeded(tmp_path: Path) -> None:
    options = read(
        tmp_path,
        {
            "functionTimeout": "00:10:00",
            "functions": ["one"],
            "extensionBundle": {"id": "x", "version": "[4.*, 5.0.0)"},
            "logging": {"logLevel": {"default": "Warning", "Function.hello": "Trace"}},
            "extensions": {
                "http": {
                    "routePrefix": "",
                    "maxOutstandingRequests": 20,
                    "maxConcurrentRequests": 5,
                    "dynamicThrottlesEnabled": False,
                    "hsts": {"isEnabled": True, "maxAge": "10"},
                    "customHeaders": {"X-Content-Type-Options": "nosniff"},
                },
                "serviceBus": {
                    "prefetchCount": 5,
                    "maxConcurrentCalls": 2,
                    "autoCompleteMessages": False,
                    "maxAutoLockRenewalDuration": "00:01:00",
                },
                "durableTask": {"hubName": "hub"},
                "queues": {
                    "batchSize": 32,
                    "maxDequeueCount": 1,
                    "visibilityTimeout": "00:00:30",
                    "maxPollingInterval": "00:00:05",
                    "messageEncoding": "none",
                },
                "blobs": {"maxDegreeOfParallelism": 4, "poisonBlobThreshold": 1},
            },
        },
    )
    assert options.function_timeout == timedelta(minutes=10)
    assert options.functions == ("one",)
    assert options.log_levels == {"default": logging.WARNING, "Function.hello": logging.DEBUG}
    assert options.http == HttpOptions(
        route_prefix="",
        max_outstanding_requests=20,
        max_concurrent_requests=5,
        custom_headers={"X-Content-Type-Options": "nosniff"},
    )
    assert options.service_bus.prefetch_count == 5
    assert options.service_bus.max_concurrent_calls == 2
    assert not options.service_bus.auto_complete_messages
    assert options.service_bus.max_auto_lock_renewal == timedelta(minutes=1)
    assert options.durable_task == {"hubName": "hub"}
    assert options.queues == QueueOptions(
        batch_size=32,
        new_batch_threshold=16,
        max_dequeue_count=1,
        visibility_timeout=timedelta(seconds=30),
        max_polling_interval=timedelta(seconds=5),
        is_base64=False,
    )
    assert options.blobs == BlobOptions(max_degree_of_parallelism=4, poison_blob_threshold=1)
    assert options.warnings == ()


def test_no_limit(tmp_path: Path) -> None:
    unlimited = {"maxOutstandingRequests": -1, "maxConcurrentRequests": "-1"}
    assert read(tmp_path, {"extensions": {"http": unlimited}}).http == HttpOptions()
    assert read(tmp_path, {"functionTimeout": "-1"}).function_timeout is None


def test_what_has_no_effect_is_warned_about_not_refused(tmp_path: Path) -> None:
    options = read(
        tmp_path,
        {
            "extensions": {"eventHubs": {}, "http": {"dynamicThrottlesEnabled": True}},
            "functionTimeOut": "00:01:00",
        },
    )
    assert options.warnings == (
        "host.json: functionTimeOut is not a setting of the host",
        "host.json: extensions.http.dynamicThrottlesEnabled has no effect here",
        "host.json: extensions.eventHubs has no effect here, this host does not cover it",
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": "1.0"}, "version is '1.0'"),
        ({"functionTimeout": "soon"}, "functionTimeout: 'soon' is not a duration"),
        ({"functions": "one"}, "functions is 'one'"),
        ({"extensions": []}, "extensions is [], not an object"),
        ({"logging": {"logLevel": {"default": "Loud"}}}, "logLevel.default is 'Loud'"),
        (
            {"extensions": {"queues": {"batchSize": 33}}},
            "extensions.queues.batchSize is 33, not a whole number from 1 to 32",
        ),
        (
            {"extensions": {"queues": {"messageEncoding": "utf-7"}}},
            "extensions.queues.messageEncoding is 'utf-7'",
        ),
        (
            {"extensions": {"http": {"maxConcurrentRequests": 0}}},
            "extensions.http.maxConcurrentRequests is 0",
        ),
        (
            {"extensions": {"http": {"maxOutstandingRequests": -2}}},
            "extensions.http.maxOutstandingRequests is -2",
        ),
        (
            {"extensions": {"serviceBus": {"maxConcurrentCalls": 0}}},
            "extensions.serviceBus.maxConcurrentCalls is 0",
        ),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    with pytest.raises(AppLoadError) as caught:
        read(tmp_path, document)
    assert "host.json" in str(caught.value)
    assert message in str(caught.value)


def test_a_folder_without_host_json_is_no_app(tmp_path: Path) -> None:
    with pytest.raises(AppLoadError, match="not the root of a Functions app"):
        HostOptions.read(tmp_path)


def test_an_environment_variable_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AzureFunctionsJobHost__logging__logLevel__default", "Error")
    monkeypatch.setenv("AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentCalls", "3")
    options = read(tmp_path, {"logging": {"logLevel": {"default": "Debug"}}})
    assert options.log_levels == {"default": logging.ERROR}
    assert options.service_bus.max_concurrent_calls == 3
