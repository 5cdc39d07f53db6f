"""The emulator's configuration format: its values and its error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localazure.errors import ConfigurationError
from localazure.servicebus import configuration
from localazure.servicebus.configuration import CorrelationFilter, NamespaceConfiguration


def write(folder: Path, **entities: Any) -> Path:
    file = folder / "Config.json"
    document = {"UserConfig": {"Namespaces": [{"Name": "n", **entities}]}}
    file.write_text(json.dumps(document))
    return file


def queue(**properties: Any) -> dict[str, Any]:
    return {"Name": "q", "Properties": properties}


def test_a_missing_file_declares_nothing(tmp_path: Path) -> None:
    assert configuration.load(tmp_path / "none.json") == NamespaceConfiguration()


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
    loaded = configuration.load(file)
    (queue_,), (topic,) = loaded.queues, loaded.topics
    properties = queue_.properties
    assert queue_.name == "q"
    assert properties.lock_ms == 90_500
    assert properties.max_delivery_count == 3
    assert properties.default_ttl_ms == 3_600_000
    assert properties.dead_lettering_on_message_expiration
    assert properties.duplicate_window_ms == 20_000
    assert (properties.forward_to, properties.forward_dead_lettered_messages_to) == ("", "t")
    assert topic.properties.default_ttl_ms == 90_000_000
    (subscription,) = topic.subscriptions
    assert topic.path_of(subscription) == "t/Subscriptions/s"
    assert subscription.properties.forward_to == "Q"
    (only,) = subscription.filters
    assert (only.system, only.properties) == ({"subject": "l"}, {"a": 1})


def test_defaults_are_those_of_the_service(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        Queues=[{"Name": "q"}],
        Topics=[{"Name": "t", "Subscriptions": [{"Name": "s"}]}],
    )
    loaded = configuration.load(file)
    (queue_,), ((subscription,),) = loaded.queues, (loaded.topics[0].subscriptions,)
    for properties in (queue_.properties, subscription.properties):
        assert (properties.lock_ms, properties.max_delivery_count) == (60_000, 10)
        assert properties.default_ttl_ms is None
        assert properties.duplicate_window_ms is None
        assert not properties.dead_lettering_on_message_expiration
    assert subscription.filters == (CorrelationFilter(),)


SQL_RULE = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}
ACTION_RULE = {"FilterType": "Correlation", "Action": {"SqlExpression": "SET a = 1"}}


def policy(*rights: str) -> dict[str, Any]:
    return {"Name": "p", "Properties": {"Rights": rights}}


def with_rule(properties: Any) -> dict[str, Any]:
    rules = [{"Name": "r", "Properties": properties}]
    return {"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": rules}]}]}


@pytest.mark.parametrize(
    ("entities", "reason"),
    [
        (
            {"Queues": [queue(LockDuration="1 minute")]},
            r'Queues\[0\].Properties.LockDuration: must be an ISO 8601 .*, found "1 minute"',
        ),
        (
            {"Queues": [queue(LockDuration="PT6M")]},
            'LockDuration: must be at most 300 s, found "PT6M"',
        ),
        ({"Queues": [queue(LockDuration="PT0S")]}, "LockDuration: must be at least 1 ms"),
        ({"Queues": [queue(LockDuration=60)]}, "LockDuration: must be an ISO 8601 .*, found 60"),
        ({"Queues": [queue(LockDuration="PT")]}, "LockDuration: .*valid timedelta"),
        ({"Queues": [queue(MaxDeliveryCount=0)]}, "MaxDeliveryCount: .*greater .* to 1, found 0"),
        ({"Queues": [queue(MaxDeliveryCount=True)]}, "valid integer, found true"),
        ({"Queues": [queue(RequiresSession=True)]}, "RequiresSession: sessions are not covered"),
        ({"Queues": [queue(RequiresSession="no")]}, 'valid boolean, found "no"'),
        ({"Queues": [queue(LockDurations="PT1M")]}, "LockDurations: unknown key; known are"),
        ({"Queues": [{"Name": "-"}]}, 'Name: string should match pattern .*, found "-"'),
        ({"Queues": [{"Name": "q", "Properties": []}]}, r"Properties: .*dictionary.*, found \[\]"),
        ({"Queues": {}}, "Queues: .*tuple.*, found {}"),
        ({"Queues": [{"Name": "q"}, {"Name": "Q"}]}, r"Queues\[1\].Name: there are two .*'Q'"),
        ({"Queues": [queue(ForwardTo="z")]}, 'ForwardTo: there is no such entity, found "z"'),
        (
            {"Queues": [queue(ForwardDeadLetteredMessagesTo="z")]},
            "ForwardDeadLetteredMessagesTo: there is no such entity",
        ),
        ({"Queues": [queue(ForwardTo="q")]}, 'ForwardTo: is the entity itself, found "q"'),
        (
            with_rule(SQL_RULE),
            r"Rules\[0\].Properties.FilterType: must be Correlation; SQL filters are not",
        ),
        (with_rule(ACTION_RULE), "Action: rule actions are not covered"),
        (
            {"Queues": [queue(MaxMessageSizeInKilobytes=2048)]},
            'MaxMessageSizeInKilobytes: needs "Sku": "Premium", found 2048',
        ),
        (
            {"Sku": "Premium", "Queues": [queue(MaxMessageSizeInKilobytes=102_401)]},
            "MaxMessageSizeInKilobytes: .*less than or equal to 102400, found 102401",
        ),
        ({"AuthorizationRules": [policy("Read")]}, r"Rights.*'Listen', 'Send' or 'Manage'"),
        ({"AuthorizationRules": [policy()]}, "Rights: .*at least 1 item"),
        (
            {"AuthorizationRules": [policy("Manage")]},
            "Rights: must have Listen and Send in addition to Manage",
        ),
    ],
)
def test_errors_name_file_line_key_and_value(tmp_path: Path, entities: Any, reason: str) -> None:
    file = write(tmp_path, **entities)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        configuration.load(file)
    assert str(caught.value).startswith(f"{file}:1: UserConfig.Namespaces[0].")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"UserConfig": {"Namespaces": []}}'])
def test_a_file_without_a_namespace_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "Config.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"Config\.json:1: "):
        configuration.load(file)


def test_dead_letters_may_be_forwarded_to_the_queue_itself(tmp_path: Path) -> None:
    file = write(tmp_path, Queues=[queue(ForwardDeadLetteredMessagesTo="q")])
    assert configuration.load(file).queues[0].properties.forward_dead_lettered_messages_to == "q"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1M", 60_000),
        ("P1D", 86_400_000),
        ("PT0.5S", 500),
        ("P10675199DT2H48M5.4775807S", 922_337_203_685_477),  # the longest TimeSpan of .NET
    ],
)
def test_durations(tmp_path: Path, text: str, milliseconds: int) -> None:
    file = write(tmp_path, Queues=[queue(DefaultMessageTimeToLive=text)])
    assert configuration.load(file).queues[0].properties.default_ttl_ms == milliseconds
