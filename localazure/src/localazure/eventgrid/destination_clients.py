"""Clients of the destinations of events, with a topic's identity or with a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localazure.runtime.environment import Environment
from localazure.runtime.roles import RoleAssignments

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient
    from azure.storage.blob.aio import BlobServiceClient

    from localazure.runtime.principal_credential import AsyncPrincipalCredential


class DestinationClients:
    """Opens clients. They do not retry: the retry policy of the subscription applies.

    The first client of an SDK imports it: all SDKs take longer to load than the rest of the part.

    Args:
        environment: the environment of the services.
        assignments: give the principals of the topics' identities.
    """

    def __init__(self, environment: Environment, assignments: RoleAssignments) -> None:
        self._environment = environment
        self._assignments = assignments

    def service_bus(self, identity_of: str | None) -> ServiceBusClient:
        """Open Service Bus with the identity of a topic, or with the key for None."""
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
        """Open an account's Blob service with the identity of a topic, or with the key for None."""
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
