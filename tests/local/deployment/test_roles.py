"""Each row of infra/roles.json lets its part work: without it, the service refuses that part.

The local cloud runs once, with the repository's own table, topology and app settings. Each party
uses its own clients and its own identity: the app those of its handlers, the Functions host, Event
Grid and Azure ML those of localazure, the deployer those of the hook. The table is changed between
the cases; a change counts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.core.messaging import CloudEvent
from azure.servicebus.exceptions import ServiceBusAuthorizationError
from azure.storage.blob import BlobServiceClient

from handlers.platform.clients import Clients
from handlers.platform.service_bus import RETRIES, Message, MessageQueues
from handlers.platform.settings import Settings
from handlers.rollout.observing import read_deployment_metrics
from harness.part_process import running_parts
from harness.role_table import TABLE, RoleTable
from infra.hooks.smoke_test import landing_container
from localazure.eventgrid.destination_clients import DestinationClients
from localazure.eventgrid.destinations import ServiceBusQueueDestination
from localazure.eventgrid.service_bus_endpoint import ServiceBusEndpoint
from localazure.functions import host_storage
from localazure.functions.errors import AppLoadError
from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import BlobStore
from localazure.runtime.certificates import ensure_certificates, trusted
from localazure.runtime.environment import Environment
from localazure.runtime.identity import CLUSTER, client_id_of
from localazure.runtime.roles import RoleAssignments
from localazure.storage_client import blobs
from localazure.storage_client.endpoint import StorageError
from localazure.supervision.app_settings import expand_app_settings

with warnings.catch_warnings():
    # azure.ai.ml defines schemas in ways that marshmallow announces the end of.
    warnings.simplefilter("ignore")
    from azure.ai.ml.entities import (
        AmlCompute,
        Data,
        IdentityConfiguration,
        ManagedIdentityConfiguration,
    )

ROOT = Path(__file__).parents[3]
LOCAL = ROOT / "infra" / "local"
ABSENT = {
    "vault": "Key Vault: secrets are plain settings here",
    "insights": "Application Insights: telemetry goes to the local receiver",
    "registry": "the container registry: jobs run without images",
    "clustersSubnet": "virtual networks: everything is on the loopback",
    "scheduler": "the Durable Task Scheduler: the engine is localazure's own",
}
"""Scope -> the service that localazure lacks. docs/deploy.md names the same."""
ROWS = [row for row in TABLE["assignments"] if row["scope"] not in ABSENT]
FORBIDDEN = 403
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Cloud:
    """The running parts, and the table that their roles are read from."""

    environment: Environment
    settings: dict[str, str]
    roles: RoleTable

    def clients(self) -> Clients:
        return Clients(Settings(self.settings))


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    app = tmp_path_factory.mktemp("app")
    roles = RoleTable(app)
    environment = Environment.draw(app / "state", app=app, config=LOCAL)
    environment.save()
    ensure_certificates(environment)
    settings = expand_app_settings(environment, LOCAL / "app-settings.json")
    with (
        pytest.MonkeyPatch.context() as patch,
        trusted(environment.ca_bundle),
        running_parts(environment.state, "storage", "servicebus", "eventgrid", "machinelearning"),
    ):
        for name, value in settings.items():
            patch.setenv(name, value)
        # The SDK loads its CA file for most requests: certifi's file takes 25 ms each time.
        patch.setenv("REQUESTS_CA_BUNDLE", str(environment.ca))
        _fill(environment)
        yield Cloud(environment, settings, roles)


def _fill(environment: Environment) -> None:
    for account, container in (
        ("landfalldata", "landing"),
        ("landfalldata", "landfall"),
        ("landfallml", "results"),
    ):
        connection = environment.storage_connection_string(account)
        with BlobServiceClient.from_connection_string(connection) as service:
            client = service.get_container_client(container)
            if not client.exists():
                client.create_container()
            client.upload_blob("there", b"x")


def start_host(cloud: Cloud) -> None:
    asyncio.run(host_storage.make_ready(cloud.settings, f"hub{uuid.uuid4().hex[:8]}"))


def list_landing_zone(cloud: Cloud) -> None:
    landing = cloud.clients().blobs.get_container_client("landing")
    assert list(landing.list_blob_names(name_starts_with="th")) == ["there"]


def write_record(cloud: Cloud) -> None:
    cloud.clients().records.upload_blob(uuid.uuid4().hex, b"x")


def write_result(cloud: Cloud) -> None:
    results = cloud.clients().workspace_blobs.get_container_client("results")
    results.upload_blob(uuid.uuid4().hex, b"x")


def send_and_receive(cloud: Cloud) -> None:
    with cloud.clients().service_bus as client:
        MessageQueues(client).send(RETRIES, Message(message_id=uuid.uuid4().hex, body="{}"))
    with cloud.clients().service_bus as client, client.get_queue_receiver(RETRIES) as receiver:
        receiver.peek_messages(1)


def publish(cloud: Cloud) -> None:
    with cloud.clients().event_grid as topic:
        topic.publish(CloudEvent(source="test", type="test", data={}))


def register_data(cloud: Cloud) -> None:
    path = "azureml://datastores/landing/paths/smoke/"
    data = Data(name="data", version=uuid.uuid4().hex, type="uri_folder", path=path)
    cloud.clients().ml.data.create_or_update(data)


def read_metrics(cloud: Cloud) -> None:
    try:
        read_deployment_metrics(cloud.clients(), "none", "none", since=NOW, now=NOW)
    except ResourceNotFoundError:
        return  # there is no endpoint, and the role allows reading this
    except HttpResponseError as error:
        if error.status_code != 404:
            raise


def make_cluster(cloud: Cloud, **options: Any) -> None:
    cluster = AmlCompute(name="grown", size="Standard_D2s_v5", max_instances=1, **options)
    cloud.clients().ml.compute.begin_create_or_update(cluster).result()


def make_cluster_with_identity(cloud: Cloud) -> None:
    resource = (
        f"/subscriptions/{cloud.environment.subscription_id}/resourceGroups/local/providers"
        "/Microsoft.ManagedIdentity/userAssignedIdentities/cluster"
    )
    identity = IdentityConfiguration(
        type="user_assigned",
        user_assigned_identities=[ManagedIdentityConfiguration(resource_id=resource)],
    )
    make_cluster(cloud, identity=identity)


def read_quota(cloud: Cloud) -> None:
    list(cloud.clients().ml.compute.list_usage())
    list(cloud.clients().ml.compute.list_sizes())


def read_input(container: str) -> Callable[[Cloud], None]:
    def attempt(cloud: Cloud) -> None:
        with contextlib.closing(BlobStore(cloud.environment, CLUSTER)) as store:
            where = BlobPath(container, "", "landfalldata")
            assert "there" in [each.path for each in store.list(where)]

    return attempt


def write_output(cloud: Cloud) -> None:
    with contextlib.closing(BlobStore(cloud.environment, CLUSTER)) as store:
        where = BlobPath("results", "", "landfallml")
        store.upload(where.child(uuid.uuid4().hex), b"x")


def deliver(topic: str, queue: str) -> Callable[[Cloud], None]:
    async def attempt(cloud: Cloud) -> None:
        async with destinations(cloud) as clients:
            endpoint = ServiceBusEndpoint(
                lambda: clients.service_bus(topic),
                "subscription",
                ServiceBusQueueDestination(resource_id=f"/queues/{queue}"),
            )
            outcome = await endpoint.deliver([{"id": uuid.uuid4().hex}], 0)
            await endpoint.close()
        if outcome.text != "Delivered":
            raise NotDelivered(outcome.text)

    return lambda cloud: asyncio.run(attempt(cloud))


def write_dead_letter(topic: str) -> Callable[[Cloud], None]:
    async def attempt(cloud: Cloud) -> None:
        async with destinations(cloud) as clients:
            service = clients.blobs("landfallapp", topic)
            await service.send(blobs.upload(f"dead-letter-events/{uuid.uuid4().hex}", b"x"))

    return lambda cloud: asyncio.run(attempt(cloud))


@contextlib.asynccontextmanager
async def destinations(cloud: Cloud) -> AsyncGenerator[DestinationClients]:
    assignments = RoleAssignments.from_environment(cloud.environment)
    tls = ssl.create_default_context(cafile=cloud.environment.ca)
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield DestinationClients(cloud.environment, assignments, session)


def land_as_deployer(cloud: Cloud) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_CLIENT_ID", client_id_of("deployer"))
        container = landing_container(
            {"LANDFALL_DATA_URL": cloud.settings["DataStorage__blobServiceUri"]}
        )
    container.upload_blob(f"smoke/{uuid.uuid4().hex}", b"x")


class NotDelivered(Exception):
    """Event Grid could not deliver; the text is its outcome."""


Attempt: TypeAlias = Callable[[Cloud], None]
ATTEMPTS: dict[tuple[str, str, str], Attempt] = {
    ("app", "Storage Blob Data Owner", "appAccount"): start_host,
    ("app", "Storage Queue Data Contributor", "appAccount"): start_host,
    ("app", "Storage Table Data Contributor", "appAccount"): start_host,
    ("app", "Storage Blob Data Reader", "landing"): list_landing_zone,
    ("app", "Storage Blob Data Contributor", "records"): write_record,
    ("app", "Storage Blob Data Contributor", "workspaceAccount"): write_result,
    ("app", "Azure Service Bus Data Owner", "serviceBus"): send_and_receive,
    ("app", "EventGrid Data Sender", "eventTopic"): publish,
    ("app", "AzureML Data Scientist", "workspace"): register_data,
    ("app", "AzureML Compute Operator", "workspace"): make_cluster,
    ("app", "Monitoring Reader", "workspace"): read_metrics,
    ("app", "Landfall quota reader", "subscription"): read_quota,
    ("app", "Managed Identity Operator", "clusterIdentity"): make_cluster_with_identity,
    ("cluster", "Storage Blob Data Reader", "landing"): read_input("landing"),
    ("cluster", "Storage Blob Data Reader", "records"): read_input("landfall"),
    ("cluster", "Storage Blob Data Contributor", "workspaceAccount"): write_output,
    ("blobEvents", "Azure Service Bus Data Sender", "blobEventsQueue"): deliver(
        "storage", "blob-events"
    ),
    ("blobEvents", "Storage Blob Data Contributor", "deadLetters"): write_dead_letter("storage"),
    ("jobEvents", "Azure Service Bus Data Sender", "jobEventsQueue"): deliver(
        "azure-ml", "job-events"
    ),
    ("jobEvents", "Storage Blob Data Contributor", "deadLetters"): write_dead_letter("azure-ml"),
    ("vaultEvents", "Azure Service Bus Data Sender", "jobEventsQueue"): deliver(
        "key-vault", "job-events"
    ),
    ("vaultEvents", "Storage Blob Data Contributor", "deadLetters"): write_dead_letter("key-vault"),
    ("deployer", "Storage Blob Data Contributor", "landing"): land_as_deployer,
}
"""Principal, role and scope -> a call that needs it."""


def refusal(attempt: Attempt, cloud: Cloud) -> str | None:
    """The service's error for a missing role; any other error is raised."""
    try:
        attempt(cloud)
    except ServiceBusAuthorizationError as error:
        return "amqp:unauthorized-access" if "claim(s) are required" in str(error) else str(error)
    except HttpResponseError as error:
        if error.status_code != FORBIDDEN:
            raise
        return str(getattr(error, "error_code", None) or getattr(error.error, "code", error))
    except StorageError as error:
        if error.status != FORBIDDEN:
            raise
        return str(error)
    except (AppLoadError, NotDelivered, AzureError) as error:
        return str(error)
    return None


def words(row: dict[str, Any]) -> str:
    """A part of the service's own error."""
    if (
        row["principal"] in {"blobEvents", "jobEvents", "vaultEvents"}
        and "Service Bus" in row["role"]
    ):
        return "Unauthorized"  # Event Grid's outcome
    if "Service Bus" in row["role"]:
        return "amqp:unauthorized-access"
    if row["scope"] == "appAccount":
        _, service, *_ = row["role"].lower().split()
        return f"the {service} service refuses"  # the host's words
    if row["scope"] == "clusterIdentity":
        return "LinkedAuthorizationFailed"
    if row["scope"] in {"workspace", "subscription"}:
        return "AuthorizationFailed"
    return "Forbidden" if row["scope"] == "eventTopic" else "AuthorizationPermissionMismatch"


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{row['principal']}-{row['role']}-{row['scope']}" for row in ROWS]
)
def test_without_its_row_a_part_is_refused(cloud: Cloud, row: dict[str, Any]) -> None:
    attempt = ATTEMPTS[row["principal"], row["role"], row["scope"]]
    cloud.roles.assign(TABLE["assignments"])
    assert refusal(attempt, cloud) is None
    cloud.roles.assign([other for other in TABLE["assignments"] if other != row])
    found = refusal(attempt, cloud)
    assert found is not None
    assert words(row) in found


def test_every_role_of_a_service_that_the_laptop_has_is_tried() -> None:
    rows = {(row["principal"], row["role"], row["scope"]) for row in ROWS}
    assert rows == ATTEMPTS.keys()


def test_the_services_that_the_laptop_lacks_are_named_in_the_docs() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    scopes = {row["scope"] for row in TABLE["assignments"]}
    assert ABSENT.keys() <= scopes
    assert [each for each in ABSENT.values() if each.partition(":")[0] not in page] == []


def test_without_its_client_id_the_app_has_no_identity(cloud: Cloud) -> None:
    cloud.roles.assign(TABLE["assignments"])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AZURE_CLIENT_ID")
        with pytest.raises(AzureError, match="App Service managed identity"):
            cloud.clients().credential.get_token("https://storage.azure.com/.default")
