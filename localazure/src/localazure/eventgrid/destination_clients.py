"""Clients for what events are delivered to, by the topic's identity or by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localazure.runtime.environment import Environment
from localazure.runtime.roles import RoleAssignments

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient
    from azure.storage.blob.aio import BlobServiceClient

    from localazure.runtime.principal_credential import AsyncPrincipalCredential


class DestinationClients:
    """Opens clients. None of them tries again: the retry policy of the subscription applies.

    An SDK is loaded with its first client: together they take longer than the rest of the part.

    Args:
        environment: whose services they are of.
        assignments: name the principals that the topics' identities are.
    """

    def __init__(self, environment: Environment, assignments: RoleAssignments) -> None:
        self._environment = environment
        self._assignments = assignments

    def service_bus(self, identity_of: str | None) -> ServiceBusClient:
        """Service Bus, for the identity of a topic; None is for the key."""
        from azure.servicebus.aio import ServiceBusClient  # noqa: PLC0415 - see above

        environment = self._environment
        if identity_of is None:
            return ServiceBusClient.from_connection_string(
                environment.service_bus_connection_string, retry_total=0
            )
        return ServiceBusClient(
            environment.service_bus_host,
            self._credential(identity_of),
            connection_verify=str(environment.ca_bundle),
            retry_total=0,
        )

    def blobs(self, account: str, identity_of: str | None) -> BlobServiceClient:
        """The Blob service of an account, for the identity of a topic; None is for the key."""
        from azure.storage.blob.aio import BlobServiceClient  # noqa: PLC0415 - see above

        environment = self._environment
        if identity_of is None:
            return BlobServiceClient.from_connection_string(
                environment.storage_connection_string(account), retry_total=0
            )
        return BlobServiceClient(
            environment.blob_tls_endpoint(account),
            credential=self._credential(identity_of),
            connection_verify=str(environment.ca_bundle),
            retry_total=0,
        )

    def _credential(self, topic: str) -> AsyncPrincipalCredential:
        from localazure.runtime.principal_credential import (  # noqa: PLC0415 - see above
            AsyncPrincipalCredential,
        )

        return AsyncPrincipalCredential(self._environment, self._assignments.identity_of(topic))
