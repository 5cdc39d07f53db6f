"""Clients of the destinations of events, with a topic's identity or with a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from localazure.runtime.environment import Environment
from localazure.runtime.roles import RoleAssignments
from localazure.storage_client.client import StorageClient

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient

    from localazure.runtime.principal_credential import AsyncPrincipalCredential


class DestinationClients:
    """Opens clients. They do not retry: the retry policy of the subscription applies.

    The first client of Service Bus imports its SDK, which takes longer to load than the part.

    Args:
        environment: the environment of the services.
        assignments: give the principals of the topics' identities.
        session: trusts the certificates of this state folder.
    """

    def __init__(
        self,
        environment: Environment,
        assignments: RoleAssignments,
        session: aiohttp.ClientSession,
    ) -> None:
        self._environment = environment
        self._assignments = assignments
        self._session = session

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

    def blobs(self, account: str, identity_of: str | None) -> StorageClient:
        """An account's Blob service with the identity of a topic, or with the key for None."""
        has_identity = identity_of is not None
        return StorageClient(
            self._session,
            self._environment.blob_endpoint(account, is_identity=has_identity),
            self._credential(identity_of) if has_identity else None,
        )

    def _credential(self, topic: str) -> AsyncPrincipalCredential:
        from localazure.runtime.principal_credential import (  # noqa: PLC0415 - see above
            AsyncPrincipalCredential,
        )

        return AsyncPrincipalCredential(self._environment, self._assignments.identity_of(topic))
