"""A pytest plugin that runs Microsoft's tests of azure-servicebus against the local broker.

The tests' decorators create namespaces, queues and topics on Azure with unpublished packages. Here
the same decorators add entities to a configuration that the broker reads at its start, after the
collection of tests. Each test has its own entities. Clients that are created with a host name use
plain AMQP, as with an emulator's connection string.
"""

from __future__ import annotations

import enum
import functools
import itertools
import json
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import azure.servicebus
import azure.servicebus.aio
import pytest

from conformance.clients.not_covered import reason_of
from conformance.devtools_testutils import (
    Given,
    Test,
    credential,
    decorator,
    module,
    test_proxy,
)
from harness.part_process import PartProcess
from localazure.runtime.environment import SERVICE_BUS_KEY_NAME, Environment

NAMESPACE: Final = "127.0.0.1"
_folder = tempfile.TemporaryDirectory(prefix="localazure-conformance-")
_environment = Environment.draw(
    Path(_folder.name) / "state", app=Path(_folder.name), config=Path(_folder.name)
)
_queues: dict[str, dict[str, Any]] = {}
_topics: set[str] = set()
_subscriptions: dict[str, str] = {}
"""Name → lock duration. Every topic gets all subscriptions: decorators do not name a topic."""
_rules: dict[str, list[str]] = {}
"""Name of an authorization rule → claims."""
_numbers = itertools.count()


def _queue(*, parameter_name: str = "servicebus_queue", **options: Any) -> Callable[[Test], Test]:
    name = f"queue-{next(_numbers)}"
    _queues[name] = {
        "LockDuration": options.get("lock_duration", "PT30S"),
        "RequiresDuplicateDetection": options.get("requires_duplicate_detection", False),
        "DeadLetteringOnMessageExpiration": options.get(
            "dead_lettering_on_message_expiration", False
        ),
        "RequiresSession": options.get("requires_session", False),
    }
    return decorator(lambda _: {parameter_name: SimpleNamespace(name=name)})


def _topic(**_: Any) -> Callable[[Test], Test]:
    name = f"topic-{next(_numbers)}"
    _topics.add(name)
    return decorator(lambda _: {"servicebus_topic": SimpleNamespace(name=name)})


def _subscription(**options: Any) -> Callable[[Test], Test]:
    name = f"subscription-{next(_numbers)}"
    _subscriptions[name] = options.get("lock_duration", "PT60S")
    return decorator(lambda _: {"servicebus_subscription": SimpleNamespace(name=name)})


def _namespace(**_: Any) -> Callable[[Test], Test]:
    return decorator(
        lambda _: {
            "servicebus_namespace": SimpleNamespace(name=NAMESPACE),
            "servicebus_namespace_connection_string": _environment.service_bus_connection_string,
            "servicebus_namespace_key_name": SERVICE_BUS_KEY_NAME,
            "servicebus_namespace_primary_key": _environment.keys.service_bus,
        }
    )


class _AccessRights(enum.StrEnum):
    manage = "Manage"
    send = "Send"
    listen = "Listen"


def _rule(parameter: str, *, entity: str | None) -> Callable[..., Callable[[Test], Test]]:
    def preparer(
        *, access_rights: Sequence[str] = tuple(_AccessRights), **_: Any
    ) -> Callable[[Test], Test]:
        name = "-".join(sorted(str(each) for each in access_rights))
        _rules[name] = [str(each) for each in access_rights]

        def give(given: Given) -> Given:
            text = _environment.service_bus_connection_string_of(name)
            if entity is not None:
                text += f"EntityPath={given[entity].name}"
            return {f"{parameter}_connection_string": text}

        return decorator(give)

    return preparer


def _nothing(**_: Any) -> Callable[[Test], Test]:
    return lambda test: test


class _RecordedTestCase:
    @staticmethod
    def await_prepared_test(test: Test) -> Test:
        """Return the test unchanged: the decorators of this plugin await it."""
        return test


def _plain_amqp(client: Any) -> None:
    connect: Callable[..., None] = client.__init__

    @functools.wraps(connect)
    def init(self: object, fully_qualified_namespace: str, *arguments: Any, **options: Any) -> None:
        if fully_qualified_namespace.rpartition("://")[2].startswith(NAMESPACE):
            options["use_tls"] = False
        connect(self, fully_qualified_namespace, *arguments, **options)

    client.__init__ = init


def _install() -> None:
    module(
        "servicebus_preparer",
        SERVICEBUS_ENDPOINT_SUFFIX=f":{_environment.ports.service_bus}",
        ServiceBusResourceGroupPreparer=_nothing,
        CachedServiceBusResourceGroupPreparer=_nothing,
        ServiceBusNamespacePreparer=_namespace,
        CachedServiceBusNamespacePreparer=_namespace,
        ServiceBusQueuePreparer=_queue,
        CachedServiceBusQueuePreparer=_queue,
        ServiceBusTopicPreparer=_topic,
        CachedServiceBusTopicPreparer=_topic,
        ServiceBusSubscriptionPreparer=_subscription,
        CachedServiceBusSubscriptionPreparer=_subscription,
        ServiceBusNamespaceAuthorizationRulePreparer=_rule(
            "servicebus_authorization_rule", entity=None
        ),
        ServiceBusQueueAuthorizationRulePreparer=_rule(
            "servicebus_queue_authorization_rule", entity="servicebus_queue"
        ),
    )
    module(
        "devtools_testutils",
        AzureMgmtRecordedTestCase=object,
        AzureRecordedTestCase=_RecordedTestCase,
        RandomNameResourceGroupPreparer=_nothing,
        get_credential=credential,
        test_proxy=test_proxy,
    )
    module("devtools_testutils.sanitizers")
    module("azure.mgmt")
    module("azure.mgmt.servicebus")
    module("azure.mgmt.servicebus.models", AccessRights=_AccessRights)
    errors = ("AzureHttpError", "AzureConflictHttpError")
    module("azure.common", **{name: type(name, (Exception,), {}) for name in errors})
    for client in (azure.servicebus.ServiceBusClient, azure.servicebus.aio.ServiceBusClient):
        _plain_amqp(client)


_install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that the broker does not support, with a reason."""
    for item in items:
        reason = reason_of(item.nodeid)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def broker() -> Generator[None]:
    """The broker, with the entities of all tests."""
    queues = [
        {"Name": name, "Properties": {**properties, "RequiresSession": False}}
        for name, properties in _queues.items()
    ]
    topics = [
        {
            "Name": name,
            "Subscriptions": [
                {"Name": each, "Properties": {"LockDuration": lock}}
                for each, lock in _subscriptions.items()
            ],
        }
        for name in _topics
    ]
    namespace = {
        "Name": "n",
        "AuthorizationRules": [
            {"Name": name, "Properties": {"Rights": claims}} for name, claims in _rules.items()
        ],
        "Queues": queues,
        "Topics": topics,
    }
    _environment.save()
    config = Path(_folder.name) / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    with PartProcess("servicebus", _environment.state):
        yield
    _folder.cleanup()
