"""The emulator's configuration format: what is read, and what errors say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localazure.servicebus import config
from localazure.servicebus.config import (
    ConfigError,
    CorrelationFilter,
    NamespaceConfig,
    QueueConfig,
    TopicConfig,
)

REPOSITORY = Path(__file__).parents[4]


def write(folder: Path, **entities: Any) -> Path:
    file = folder / "Config.json"
    document = {"UserConfig": {"Namespaces": [{"Name": "n", **entities}]}}
    file.write_text(json.dumps(document))
    return file


def queue(**properties: Any) -> dict[str, Any]:
    return {"Name": "q", "Properties": properties}


def test_a_missing_file_declares_nothing(tmp_path: Path) -> None:
    assert config.load(tmp_path / "none.json") == NamespaceConfig()


def test_every_property_is_read(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        Queues=[
            queue(
                DeadLetteringOnMessageExpiration=True,
                DefaultMessageTimeToLive="PT1H",
                DuplicateDetectionHistoryTimeWindow="PT20S",
                ForwardDeadLetteredMessagesTo="t",
                ForwardTo="",
                LockDuration="PT1M30.5S",
                MaxDeliveryCount=3,
                RequiresDuplicateDetection=True,
                RequiresSession=False,
            )
        ],
        Topics=[
            {
                "Name": "t",
                "Properties": {"DefaultMessageTimeToLive": "P1DT1H"},
                "Subscriptions": [
                    {
                        "Name": "s",
                        "Properties": {"ForwardTo": "Q"},
                        "Rules": [
                            {
                                "Name": "r",
                                "Properties": {
                                    "FilterType": "Correlation",
                                    "CorrelationFilter": {"Label": "l", "Properties": {"a": 1}},
                                },
                            }
                        ],
                    }
                ],
            }
        ],
    )
    loaded = config.load(file)
    assert loaded.queues == (
        QueueConfig(
            path="q",
            lock_ms=90_500,
            max_delivery_count=3,
            default_ttl_ms=3_600_000,
            dead_letters_expired=True,
            duplicate_window_ms=20_000,
            forward_dead_letters_to="t",
        ),
    )
    rule = CorrelationFilter(system={"subject": "l"}, application={"a": 1})
    subscription = QueueConfig(path="t/Subscriptions/s", forward_to="Q", rules=(rule,))
    assert loaded.topics == (
        TopicConfig(path="t", subscriptions=(subscription,), default_ttl_ms=90_000_000),
    )


def test_defaults_are_those_of_the_service(tmp_path: Path) -> None:
    (only,) = config.load(write(tmp_path, Queues=[{"Name": "q"}])).queues
    assert only == QueueConfig(path="q", lock_ms=60_000, max_delivery_count=10)
    assert only.duplicate_window_ms is None
    assert only.rules == (CorrelationFilter(),)


@pytest.mark.parametrize(
    ("entities", "reason"),
    [
        (
            {"Queues": [queue(LockDuration="1 minute")]},
            r"Queues\[0\].Properties.LockDuration: '1 minute': must be an ISO 8601",
        ),
        ({"Queues": [queue(LockDuration="PT6M")]}, "'PT6M': must be at most 300 seconds"),
        ({"Queues": [queue(LockDuration="PT0S")]}, "'PT0S': must be"),
        ({"Queues": [queue(MaxDeliveryCount=0)]}, "0: must be an integer of at least 1"),
        ({"Queues": [queue(MaxDeliveryCount=True)]}, "True: must be an integer"),
        ({"Queues": [queue(RequiresSession=True)]}, "RequiresSession: True: sessions are not"),
        ({"Queues": [queue(RequiresSession="no")]}, "'no': must be true or false"),
        ({"Queues": [queue(LockDurations="PT1M")]}, "LockDurations: 'PT1M': unknown property"),
        ({"Queues": [{"Name": "-"}]}, "'-': must be a name"),
        ({"Queues": [{"Name": "q", "Properties": []}]}, r"Properties: \[\]: must be an object"),
        ({"Queues": {}}, "Queues: {}: must be an array"),
        ({"Queues": [{"Name": "q"}, {"Name": "Q"}]}, "'Q': there are two entities"),
        ({"Queues": [queue(ForwardTo="z")]}, "ForwardTo of q: 'z': no such entity"),
        ({"Queues": [queue(ForwardTo="q")]}, "more than 4 hops, or a circle"),
        (
            {
                "Topics": [
                    {
                        "Name": "t",
                        "Subscriptions": [
                            {
                                "Name": "s",
                                "Rules": [
                                    {
                                        "Name": "r",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "1=1"},
                                        },
                                    }
                                ],
                            }
                        ],
                    }
                ]
            },
            r"Rules\[0\].Properties.FilterType: 'Sql': must be Correlation; SQL filters are not",
        ),
    ],
)
def test_errors_name_file_place_and_value(tmp_path: Path, entities: Any, reason: str) -> None:
    file = write(tmp_path, **entities)
    with pytest.raises(ConfigError, match=reason) as caught:
        config.load(file)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize("text", ["{", "[]", '{"UserConfig": {"Namespaces": []}}'])
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "Config.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"Config\.json"):
        config.load(file)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT1M", 60_000), ("P1D", 86_400_000), ("PT0.5S", 500), ("P10675199DT2H48M5.4775807S", None)],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    parsed = config.parse_duration_ms(text)
    assert parsed is not None
    assert milliseconds is None or parsed == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "P1M", "PT-1S", "60"])
def test_what_is_no_duration(text: str) -> None:
    assert config.parse_duration_ms(text) is None


def test_the_apps_own_entities_load() -> None:
    loaded = config.load(REPOSITORY / "infra" / "local" / "Config.json")
    assert [item.path for item in loaded.queues] == ["retries", "notifications", "rejected-runs"]
    assert all(item.duplicate_window_ms for item in loaded.queues)
    (topic,) = loaded.topics
    assert [item.path for item in topic.subscriptions] == [
        "ops-alerts/Subscriptions/on-call",
        "ops-alerts/Subscriptions/audit",
    ]
