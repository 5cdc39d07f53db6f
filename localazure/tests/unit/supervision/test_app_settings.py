from __future__ import annotations

import json
from pathlib import Path

import pytest

from localazure.errors import ConfigurationError
from localazure.runtime.environment import Environment, Ports
from localazure.runtime.identity import client_id_of
from localazure.supervision.app_settings import expand_app_settings


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment.draw(tmp_path, app=tmp_path, ports=Ports.from_base(7070))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app-settings.json"


def test_placeholders_are_replaced_anywhere(environment: Environment, file: Path) -> None:
    written = {
        "DataStorage": "{storage_connection_string}",
        "ServiceBus": "{service_bus_connection_string}",
        "Topic__endpoint": "{topic_endpoint:landfall}",
        "Topic__key": "{event_grid_key:landfall}",
        "Data__blobServiceUri": "{blob_tls_endpoint:data}",
        "ByIdentity__endpoint": "{topic_tls_endpoint:landfall}",
        "ByIdentity__queueServiceUri": "{queue_tls_endpoint:data}",
        "ByIdentity__tableServiceUri": "{table_tls_endpoint:data}",
        "ByIdentity__fullyQualifiedNamespace": "{service_bus_host}",
        "ByIdentity__clientId": "{client_id:app}",
        "Id": "/subscriptions/{subscription_id}/resourceGroups/{resource_group}/{workspace}",
        "Landing": "{blob_url}/landing",
        "Binding": "%schedule% {queueTrigger}",
        "FUNCTIONS_WORKER_RUNTIME": "other",
    }
    file.write_text(json.dumps(written))
    settings = expand_app_settings(environment, file)
    assert {name: settings[name] for name in written} == {
        "DataStorage": environment.storage_connection_string(),
        "ServiceBus": environment.service_bus_connection_string,
        "Topic__endpoint": "http://127.0.0.1:7100/topics/landfall/api/events",
        "Topic__key": environment.event_grid_keys("landfall")[0],
        "Data__blobServiceUri": f"https://localhost:{environment.ports.blob_tls}/data",
        "ByIdentity__endpoint": (
            f"https://localhost:{environment.ports.event_grid_tls}/topics/landfall/api/events"
        ),
        "ByIdentity__queueServiceUri": f"https://localhost:{environment.ports.queue_tls}/data",
        "ByIdentity__tableServiceUri": f"https://localhost:{environment.ports.table_tls}/data",
        "ByIdentity__fullyQualifiedNamespace": environment.service_bus_host,
        "ByIdentity__clientId": client_id_of("app"),
        "Id": "/subscriptions/00000000-0000-0000-0000-00000000a2e5/resourceGroups/local/local",
        "Landing": "http://127.0.0.1:7080/devstoreaccount1/landing",
        "Binding": "%schedule% {queueTrigger}",
        "FUNCTIONS_WORKER_RUNTIME": "other",
    }


def test_the_connection_string_of_an_authorization_rule(
    environment: Environment, file: Path
) -> None:
    rule = {"Name": "send-only", "Properties": {"Rights": ["Send"]}}
    queue = {"Name": "Jobs", "AuthorizationRules": [rule]}
    namespace = {"Name": "n", "AuthorizationRules": [rule], "Queues": [queue]}
    environment.service_bus_config.parent.mkdir(parents=True)
    environment.service_bus_config.write_text(
        json.dumps({"UserConfig": {"Namespaces": [namespace]}})
    )
    file.write_text('{"Bus": "{service_bus_connection_string:send-only}"}')
    found = expand_app_settings(environment, file)["Bus"]
    assert found == environment.service_bus_connection_string_of("send-only")
    assert environment.keys.service_bus not in found
    file.write_text('{"Bus": "{service_bus_connection_string:Jobs/send-only}"}')
    of_queue = expand_app_settings(environment, file)["Bus"]
    assert of_queue == environment.service_bus_connection_string_of("send-only", "Jobs")
    assert ";EntityPath=Jobs;" in of_queue
    assert environment.service_bus_key("send-only") not in of_queue
    file.write_text('{"Bus": "{service_bus_connection_string:sender}"}')
    declared = "send-only, Jobs/send-only"
    with pytest.raises(ConfigurationError, match=f"rule 'sender'; declared are {declared}"):
        expand_app_settings(environment, file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        (b"\xff", "not UTF-8"),
        ("[]", "valid dictionary"),
        ('{"Retries": 3}', "Retries: input should be a valid string$"),
        ('{"Storage": "{storage}"}', r"Storage: unknown placeholder \{storage\}; known are"),
        ('{"Topic": "{topic_endpoint}"}', r"Topic: unknown placeholder .* topic_endpoint:NAME"),
        ('{"Key": "{event_grid_key}"}', "Key: unknown placeholder .* event_grid_key:NAME"),
    ],
)
def test_an_error_names_file_and_setting(
    environment: Environment, file: Path, content: str | bytes, words: str
) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError, match=words) as caught:
        expand_app_settings(environment, file)
    assert str(caught.value).startswith(f"{file}:1: ")
