from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from localazure.errors import ConfigurationError
from localazure.eventgrid.configuration import Configuration, Subscription, load
from localazure.eventgrid.filters import operands
from localazure.eventgrid.schemas import Schema
from localazure.runtime.environment import Environment, Ports

FULL: dict[str, Any] = {
    "topics": [{"name": "custom"}, {"name": "clouds", "inputSchema": "CloudEventSchemaV1_0"}],
    "eventSubscriptions": [
        {
            "name": "one",
            "topic": "custom",
            "properties": {
                "destination": {
                    "endpointType": "WebHook",
                    "properties": {
                        "endpointUrl": "{functions_url}/api/hook?code={functions_system_key}",
                        "maxEventsPerBatch": 5,
                        "preferredBatchSizeInKilobytes": 8,
                    },
                },
                "filter": {
                    "includedEventTypes": ["A"],
                    "subjectBeginsWith": "",
                    "isSubjectCaseSensitive": True,
                    "enableAdvancedFilteringOnArrays": True,
                    "advancedFilters": [
                        {"operatorType": "NumberInRange", "key": "data.n", "values": [[1, 2]]},
                        {"operatorType": "StringIn", "key": "data.s", "values": ["Up"]},
                        {"operatorType": "BoolEquals", "key": "data.b", "value": True},
                        {"operatorType": "IsNotNull", "key": "data.x"},
                    ],
                },
                "retryPolicy": {"maxDeliveryAttempts": 3, "eventTimeToLiveInMinutes": 5},
                "deadLetterDestination": {
                    "endpointType": "StorageBlob",
                    "properties": {"blobContainerName": "dead", "resourceId": "/s"},
                },
                "eventDeliverySchema": "CloudEventSchemaV1_0",
            },
        }
    ],
}


PROPERTIES = "eventSubscriptions.0.properties"
BY_IDENTITY = f"{PROPERTIES}.deliveryWithResourceIdentity"
RETRIES = f"{PROPERTIES}.retryPolicy"
FILTER = f"{PROPERTIES}.filter"
CONDITIONS = f"{FILTER}.advancedFilters"


def changed(path: str, value: object) -> dict[str, Any]:
    """The full document with the value at a path replaced."""
    document = copy.deepcopy(FULL)
    *way, last = path.split(".")
    target: Any = document
    for step in way:
        target = target[int(step)] if step.isdigit() else target[step]
    target[last] = value
    return document


def condition(operator: str, **operands: object) -> dict[str, Any]:
    return {"operatorType": operator, "key": "data.x", **operands}


def by_identity(endpoint_type: str) -> dict[str, Any]:
    destination = {"endpointType": endpoint_type, "properties": {"resourceId": "/queues/q"}}
    return {"identity": {"type": "SystemAssigned"}, "destination": destination}


def environment(folder: Path) -> Environment:
    return Environment.draw(folder, app=folder, config=folder, ports=Ports.from_base(7070))


def read(tmp_path: Path, document: object) -> Configuration:
    (tmp_path / "event-grid.json").write_text(json.dumps(document, indent=1))
    return load(environment(tmp_path))


def only(configuration: Configuration) -> Subscription:
    (subscription,) = configuration.event_subscriptions
    return subscription


def destination_of(subscription: Subscription) -> Any:
    return subscription.properties.destination.properties


def test_every_setting_is_read(tmp_path: Path) -> None:
    configuration = read(tmp_path, FULL)
    subscription, retry_schedule = only(configuration), configuration.retry_schedule
    properties, batching = subscription.properties, subscription.batching(attempts=0)
    there = environment(tmp_path)
    assert destination_of(subscription).url(there) == (
        f"http://127.0.0.1:7071/api/hook?code={there.keys.functions_system}"
    )
    assert configuration.delivery_schema(subscription) is Schema.CLOUD_EVENTS
    assert batching.max_events_per_batch == 5
    assert batching.preferred_batch_size_in_kilobytes == 8
    assert properties.retry_policy.max_delivery_attempts == 3
    assert properties.retry_policy.time_to_live_seconds == 300
    assert not retry_schedule.scaled
    assert subscription.properties.dead_letters is not None
    assert subscription.properties.dead_letters.properties.blob_container_name == "dead"
    assert properties.filter.is_subject_case_sensitive
    assert properties.filter.enable_advanced_filtering_on_arrays
    assert [operands(condition) for condition in properties.filter.advanced_filters] == [
        ((1, 2),),
        ("up",),
        (True,),
        (None,),
    ]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("topics.0.name", "storage", r"topics\[0\]\.name: this name is taken"),
        ("topics.0.name", "_", r"topics\[0\]\.name: .*pattern"),
        ("topics.0.more", 1, r"topics\[0\]\.more: unknown key"),
        ("eventSubscriptions.0.topic", "no", r"eventSubscriptions\[0\]\.topic.*storage.*\"no\""),
        (BY_IDENTITY, by_identity("ServiceBusQueue"), "destination: give one"),
        (BY_IDENTITY, by_identity("AzureFunction"), "found using .*ServiceBusQueue"),
        (f"{RETRIES}.maxDeliveryAttempts", 31, "maxDeliveryAttempts: .* equal to 30, found 31"),
        (f"{RETRIES}.eventTimeToLiveInMinutes", 1441, "Minutes: .* equal to 1440, found 1441"),
        (f"{CONDITIONS}.0.operatorType", "StringLike", r"Filters\[0\]: .*StringLike.*NumberIn"),
        (f"{CONDITIONS}.0.values", [[2, 1]], r"values\[0\]: must be \[low, high\]"),
        (CONDITIONS, [condition("NumberIn", values=["1"])], r"values\[0\]: .*valid number"),
        (f"{CONDITIONS}.1.values", ["x"] * 26, "at most 25 filters"),
    ],
)
def test_an_error_names_file_line_key_and_value(
    tmp_path: Path, path: str, value: object, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        read(tmp_path, changed(path, value))
    assert str(tmp_path / "event-grid.json") in str(caught.value)


def test_delivery_and_dead_letters_by_the_identity_of_the_topic(tmp_path: Path) -> None:
    document = copy.deepcopy(FULL)
    properties = document["eventSubscriptions"][0]["properties"]
    del properties["destination"]
    properties["deliveryWithResourceIdentity"] = by_identity("ServiceBusQueue")
    subscription = only(read(tmp_path, document))
    assert destination_of(subscription).name == "q"
    assert (subscription.delivering_identity, subscription.dead_letters_identity) == (
        "custom",
        None,
    )

    properties["deadLetterWithResourceIdentity"] = {
        "identity": {"type": "SystemAssigned"},
        "deadLetterDestination": properties.pop("deadLetterDestination"),
    }
    subscription = only(read(tmp_path, document))
    assert subscription.properties.dead_letters is not None
    assert subscription.properties.dead_letters.properties.blob_container_name == "dead"
    assert subscription.dead_letters_identity == "custom"
