from __future__ import annotations

from typing import Any

import pytest
from azure.core.credentials import AccessToken

from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from orchestrations.errors import InvalidSetting

STORAGE = (
    "DefaultEndpointsProtocol=https;AccountName=landingaccount;AccountKey=a2V5;"
    "EndpointSuffix=core.windows.net"
)
SERVICE_BUS = (
    "Endpoint=sb://landfall.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
)
CLIENTS = ("blobs", "records", "service_bus", "event_grid", "ml", "workspace_blobs")


class Identity:
    def get_token(self, *_: str, **__: Any) -> AccessToken:
        raise AssertionError("nothing asks for a token before it is used")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_that_cannot_be_made_names_its_setting(name: str) -> None:
    clients = Clients(Settings({}))
    clients.__dict__["credential"] = Identity()
    with pytest.raises(InvalidSetting, match="is missing: set it"):
        getattr(clients, name)


# Unit tests have no sockets: a client that connected when it is made would fail here.
def test_connection_strings_make_clients_that_are_kept() -> None:
    clients = Clients(
        Settings(
            {
                "DataStorage": STORAGE,
                "WorkspaceStorage": STORAGE.replace("landingaccount", "workspace"),
                "ServiceBus": SERVICE_BUS,
                "EventGridTopic__endpoint": "https://landfall.westeurope-1.eventgrid.azure.net",
                "EventGridTopic__key": "a2V5",
            }
        )
    )
    assert clients.blobs.account_name == "landingaccount"
    assert clients.workspace_blobs.account_name == "workspace"
    assert clients.records.container_name == "landfall"
    assert clients.service_bus.fully_qualified_namespace == "landfall.servicebus.windows.net"
    assert clients.event_grid is clients.event_grid
    assert clients.blobs is clients.blobs
    assert "credential" not in vars(clients)


SHORTEST_ACTIVITY_SECONDS = 30.0


@pytest.mark.parametrize("settings", ["DataStorage", "DataStorage__blobServiceUri"])
def test_the_retries_of_storage_fit_into_an_activity(settings: str) -> None:
    value = STORAGE if settings == "DataStorage" else "https://a.blob.core.windows.net"
    clients = Clients(Settings({settings: value}))
    clients.__dict__["credential"] = Identity()
    policy: Any = clients.blobs._config.retry_policy  # pyright: ignore[reportPrivateUsage]
    pauses = [
        policy.initial_backoff
        + (policy.increment_base**count if count else 0)
        + policy.random_jitter_range
        for count in range(policy.total_retries)
    ]
    assert len(pauses) >= 3
    assert sum(pauses) < SHORTEST_ACTIVITY_SECONDS - 5


def test_endpoints_are_reached_with_the_managed_identity() -> None:
    clients = Clients(
        Settings(
            {
                "DataStorage__blobServiceUri": "https://landingaccount.blob.core.windows.net",
                "WorkspaceStorage__blobServiceUri": "https://workspace.blob.core.windows.net",
                "ServiceBus__fullyQualifiedNamespace": "landfall.servicebus.windows.net",
                "EventGridTopic__endpoint": "https://landfall.westeurope-1.eventgrid.azure.net",
                "RECORDS_CONTAINER": "records",
            }
        )
    )
    clients.__dict__["credential"] = identity = Identity()
    assert clients.blobs.account_name == "landingaccount"
    assert clients.blobs.credential is identity
    assert clients.workspace_blobs.account_name == "workspace"
    assert clients.records.container_name == "records"
    assert clients.service_bus.fully_qualified_namespace == "landfall.servicebus.windows.net"
    assert clients.event_grid is clients.event_grid
