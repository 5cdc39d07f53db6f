"""Each role permits its operations; without the role, the service refuses them.

The parts run as processes with the repository's own table and topology; the SDKs send tokens of the
local identity endpoint's issuer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridPublisherClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError
from azure.storage.blob import BlobServiceClient, ContainerClient
from azure.storage.queue import QueueClient

from harness.child_process import REPOSITORY
from harness.part_process import running_parts
from harness.role_table import TABLE, RoleTable
from localazure.runtime.certificates import ensure_certificates, trusted
from localazure.runtime.environment import Environment
from localazure.runtime.identity import TokenIssuer
from localazure.runtime.principal_credential import PrincipalCredential
from localazure.storage_client.endpoint import StorageError

FORBIDDEN = 403


@dataclass
class Cloud:
    """The running parts, and the table from which they read roles."""

    environment: Environment
    roles: RoleTable


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    app = tmp_path_factory.mktemp("app")
    roles = RoleTable(app)
    environment = Environment.draw(app / "state", app=app, config=REPOSITORY / "infra" / "local")
    environment.save()
    ensure_certificates(environment)
    with (
        pytest.MonkeyPatch.context() as patch,
        trusted(environment.ca_bundle),
        running_parts(environment.state, "storage", "servicebus", "eventgrid"),
    ):
        patch.setenv("REQUESTS_CA_BUNDLE", str(environment.ca_bundle))  # as app settings do
        connection = environment.storage_connection_string("landfalldata")
        with BlobServiceClient.from_connection_string(connection) as data:
            data.get_blob_client("landing", "there").upload_blob(b"x")
        yield Cloud(environment, roles)


Attempt = Callable[[Environment, str], None]


def container_of(
    environment: Environment, principal: str, account: str, name: str
) -> ContainerClient:
    return ContainerClient(
        f"https://localhost:{environment.ports.blob_tls}/{account}",
        name,
        credential=PrincipalCredential(environment, principal),
        retry_total=0,
    )


def write_to(account: str, container: str) -> Attempt:
    def attempt(environment: Environment, principal: str) -> None:
        with container_of(environment, principal, account, container) as client:
            client.upload_blob(uuid.uuid4().hex, b"x", metadata={"k": "ü".encode().hex()})

    return attempt


def read(environment: Environment, principal: str) -> None:
    with container_of(environment, principal, "landfalldata", "landing") as client:
        assert list(client.list_blob_names(name_starts_with="the")) == ["there"]
        assert client.download_blob("there", offset=0, length=1).readall() == b"x"


def use_queues(environment: Environment, principal: str) -> None:
    url = f"https://localhost:{environment.ports.queue_tls}/landfallapp"
    with QueueClient(
        url,
        f"q{uuid.uuid4().hex}",
        credential=PrincipalCredential(environment, principal),
        retry_total=0,
    ) as queue:
        queue.create_queue()
        queue.send_message("a")
        assert queue.receive_message().content == "a"  # pyright: ignore[reportOptionalMemberAccess]


def use_tables(environment: Environment, principal: str) -> None:
    token = (
        PrincipalCredential(environment, principal)
        .get_token("https://storage.azure.com/.default")
        .token
    )
    answer = requests.post(
        f"https://localhost:{environment.ports.table_tls}/landfallapp/Tables",
        json={"TableName": f"T{uuid.uuid4().hex}"},
        headers={
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "x-ms-version": "2021-12-02",
        },
        timeout=30,
    )
    if not answer.ok:
        raise StorageError("a table", answer.status_code, answer.json()["odata.error"]["code"])


def bus(environment: Environment, principal: str) -> ServiceBusClient:
    credential: Any = PrincipalCredential(environment, principal)
    return ServiceBusClient(environment.service_bus_host, credential, retry_total=0)


def send(environment: Environment, principal: str) -> None:
    with bus(environment, principal) as client, client.get_queue_sender("retries") as sender:
        sender.send_messages(ServiceBusMessage("x"))


def receive(environment: Environment, principal: str) -> None:
    with (
        bus(environment, principal) as client,
        client.get_queue_receiver("job-events") as receiver,
    ):
        receiver.peek_messages(1)
        receiver.receive_messages(max_wait_time=0.01)


def publish(environment: Environment, principal: str) -> None:
    url = f"https://localhost:{environment.ports.event_grid_tls}/topics/landfall/api/events"
    identity: Any = PrincipalCredential(environment, principal)
    with EventGridPublisherClient(url, identity) as client:
        client.send(CloudEvent(source="test", type="test", data={}), retry_total=0)


ATTEMPTS: dict[tuple[str, str], Attempt] = {
    ("Storage Blob Data Owner", "appAccount"): write_to("landfallapp", "dead-letter-events"),
    ("Storage Queue Data Contributor", "appAccount"): use_queues,
    ("Storage Table Data Contributor", "appAccount"): use_tables,
    ("Storage Blob Data Reader", "landing"): read,
    ("Storage Blob Data Contributor", "records"): write_to("landfalldata", "landfall"),
    ("Azure Service Bus Data Sender", "serviceBus"): send,
    ("Azure Service Bus Data Receiver", "serviceBus"): receive,
    ("EventGrid Data Sender", "eventTopic"): publish,
}
ROWS = [
    row
    for row in TABLE["assignments"]
    if row["principal"] == "app" and (row["role"], row["scope"]) in ATTEMPTS
]


def is_refused(attempt: Attempt, environment: Environment, principal: str) -> bool:
    """Whether the service refuses the attempt for lack of a role; other errors are raised."""
    try:
        attempt(environment, principal)
    except HttpResponseError as error:
        found = error.status_code == FORBIDDEN
        if not found:
            raise
    except StorageError as error:
        found = (error.status, error.code) == (FORBIDDEN, "AuthorizationPermissionMismatch")
        if not found:
            raise
    except ServiceBusAuthorizationError as error:
        found = "claim(s) are required" in str(error)
        if not found:
            raise
    else:
        found = False
    return found


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['role']}-{row['scope']}" for row in ROWS])
def test_without_its_row_a_part_fails(cloud: Cloud, row: dict[str, Any]) -> None:
    attempt = ATTEMPTS[row["role"], row["scope"]]
    cloud.roles.assign([row])
    assert not is_refused(attempt, cloud.environment, row["principal"])
    cloud.roles.assign([other for other in TABLE["assignments"] if other != row])
    assert is_refused(attempt, cloud.environment, row["principal"])


def test_a_reader_may_not_write(cloud: Cloud) -> None:
    cloud.roles.assign(TABLE["assignments"])
    assert is_refused(write_to("landfalldata", "landing"), cloud.environment, "app")


def test_a_token_for_another_service_is_refused_with_a_challenge(cloud: Cloud) -> None:
    environment = cloud.environment
    issuer = TokenIssuer(environment.keys.identity_header, frozenset())
    token, _ = issuer.issue("https://vault.azure.net", now=time.time())

    def ask(scheme: str, port: int) -> tuple[int, str, str]:
        answer = requests.get(
            f"{scheme}://localhost:{port}/landfalldata/landing/there",
            headers={"Authorization": f"Bearer {token}", "x-ms-version": "2021-12-02"},
            timeout=30,
        )
        challenge = answer.headers.get("WWW-Authenticate", "").partition(" ")[0]
        return answer.status_code, answer.headers["x-ms-error-code"], challenge

    over_tls = ask("https", environment.ports.blob_tls)
    assert over_tls == (401, "InvalidAuthenticationInfo", "Bearer")
    in_the_clear = ask("http", environment.ports.blob)
    assert in_the_clear == (400, "AccountRequiresHttps", "")


@dataclass
class ExpiredCredential:
    """The credential of a principal with every role, whose tokens expired yesterday."""

    environment: Environment

    def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
        issuer = TokenIssuer(self.environment.keys.identity_header, frozenset())
        token, _ = issuer.issue(scopes[0], now=time.time() - 2 * 86400, principal="app")
        return AccessToken(token, int(time.time()) + 3600)


def test_an_expired_token_is_no_authentication_anywhere(cloud: Cloud) -> None:
    cloud.roles.assign(TABLE["assignments"])
    environment = cloud.environment
    credential: Any = ExpiredCredential(environment)
    token = credential.get_token("https://storage.azure.com/.default").token
    headers = {"Authorization": f"Bearer {token}", "x-ms-version": "2021-12-02"}
    for endpoint in (
        environment.blob_tls_endpoint("landfallapp") + "/landing?restype=container&comp=list",
        environment.queue_tls_endpoint("landfallapp") + "?comp=list",
        environment.table_tls_endpoint("landfallapp") + "/Tables",
    ):
        answer = requests.get(endpoint, headers=headers, timeout=30)
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (
            401,
            "InvalidAuthenticationInfo",
        )
    with (
        EventGridPublisherClient(environment.topic_tls_endpoint("landfall"), credential) as topic,
        pytest.raises(ClientAuthenticationError),
    ):
        topic.send(CloudEvent(source="test", type="test", data={}), retry_total=0)
    with (
        ServiceBusClient(environment.service_bus_host, credential, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError) as refused,
    ):
        client.get_queue_sender("retries").__enter__()
    assert "the token has expired" in str(refused.value.inner_exception)
