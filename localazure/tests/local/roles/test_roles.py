"""Roles and tokens of identities; tests/local/deployment/test_roles.py tries each row of the table.

The parts run as processes with the repository's own table and topology; the SDKs send tokens of the
local identity endpoint's issuer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
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

from harness.child_process import REPOSITORY
from harness.part_process import running_parts
from harness.role_table import TABLE, RoleTable
from localazure.runtime.certificates import ensure_certificates, trusted
from localazure.runtime.environment import Environment
from localazure.runtime.identity import TokenIssuer
from localazure.runtime.principal_credential import PrincipalCredential


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


def test_a_reader_may_not_write(cloud: Cloud) -> None:
    cloud.roles.assign(TABLE["assignments"])
    with ContainerClient(
        f"https://localhost:{cloud.environment.ports.blob_tls}/landfalldata",
        "landing",
        credential=PrincipalCredential(cloud.environment, "app"),
        retry_total=0,
    ) as client:
        assert list(client.list_blob_names(name_starts_with="the")) == ["there"]
        assert client.download_blob("there", offset=0, length=1).readall() == b"x"
        with pytest.raises(HttpResponseError, match="AuthorizationPermissionMismatch") as refused:
            client.upload_blob(uuid.uuid4().hex, b"x")
    assert refused.value.status_code == 403


def test_without_a_role_service_bus_and_event_grid_refuse(cloud: Cloud) -> None:
    environment = cloud.environment
    identity: Any = PrincipalCredential(environment, "app")
    url = environment.topic_tls_endpoint("landfall")

    def send() -> None:
        with (
            ServiceBusClient(environment.service_bus_host, identity, retry_total=0) as client,
            client.get_queue_sender("retries") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))

    def publish() -> None:
        with EventGridPublisherClient(url, identity) as client:
            client.send(CloudEvent(source="test", type="test", data={}), retry_total=0)

    cloud.roles.assign([])
    with pytest.raises(ServiceBusAuthorizationError, match=r"claim\(s\) are required"):
        send()
    with pytest.raises(HttpResponseError) as refused:
        publish()
    assert refused.value.status_code == 403
    cloud.roles.assign(TABLE["assignments"])
    send()
    publish()


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
