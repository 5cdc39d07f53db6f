"""The Azure SDK clients, each created at its first use and cached.

Nothing connects, reads a setting or loads an SDK when the function app is imported; azure.ai.ml
alone costs over a second and 100 MB, so that only the activities that need it pay.
"""

from __future__ import annotations

import ssl
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from handlers.platform.bulkheads import BackgroundThread
from handlers.platform.settings import Connection, Settings

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities import AzureBlobDatastore
    from azure.core.pipeline import PipelineResponse
    from azure.identity import DefaultAzureCredential
    from azure.servicebus import ServiceBusClient
    from azure.storage.blob import BlobServiceClient, ContainerClient

    from handlers.platform.event_grid import EventGridTopic
    from handlers.platform.service_bus import MessageQueues
    from handlers.platform.telemetry import Telemetry

# A call of Azure ML ends within 60 s, including retries. The SDK's default limits are 300 s for
# each try and a week in all.
AZURE_ML_LIMITS_SECONDS: dict[str, Any] = {
    "connection_timeout": 10,
    "read_timeout": 30,
    "timeout": 60,
}

# Requests to storage are retried after 1, 3, 5 and 9 s, so that four failures in a row fit into the
# 30 s of an activity. The SDK's default backoff begins with 15 s: two failures would not fit.
STORAGE_OPTIONS: dict[str, Any] = {
    # The SDK's defaults are 20 s and 60 s for each of the five tries.
    "connection_timeout": 5,
    "read_timeout": 20,
    "initial_backoff": 1,
    "increment_base": 2,
    "random_jitter_range": 1,
    "retry_total": 4,
}


class Clients:
    """The clients of all external services."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def background(self) -> BackgroundThread:
        """The thread for background work."""
        return BackgroundThread()

    @cached_property
    def rollout_steps(self) -> set[str]:
        """Records of rollout steps that this process knows to exist."""
        return set()

    @cached_property
    def elsewhere(self) -> dict[str, Clients]:
        """Clients of the workspaces that models are promoted to, by ARM id, once they are made."""
        return {}

    @cached_property
    def credential(self) -> DefaultAzureCredential:
        """The function app's managed identity."""
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - see the module

        return DefaultAzureCredential()

    @cached_property
    def telemetry(self) -> Telemetry:
        """The exporter of spans and metrics, if the settings configure one."""
        from handlers.platform.telemetry import Telemetry  # noqa: PLC0415 - see the module

        return Telemetry(self.settings)

    @cached_property
    def blobs(self) -> BlobServiceClient:
        """The premium account of the landing zones."""
        return self._blob_service(self.settings.connection("DataStorage", "blobServiceUri"))

    @cached_property
    def records(self) -> ContainerClient:
        """The container of Landfall's own records: manifests, ledger, claims."""
        return self.blobs.get_container_client(self.settings.records_container)

    @cached_property
    def service_bus(self) -> ServiceBusClient:
        """The namespace of `retries`, `notifications`, `rejected-runs` and `ops-alerts`."""
        import certifi  # noqa: PLC0415 - see the module
        from azure.servicebus import ServiceBusClient  # noqa: PLC0415 - see the module

        connection = self.settings.connection("ServiceBus", "fullyQualifiedNamespace")
        # The SDK's own roots, read once: it takes 24 ms to read them for each sender and receiver.
        roots = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        roots.load_verify_locations(certifi.where())
        if connection.connection_string is not None:
            return ServiceBusClient.from_connection_string(
                connection.connection_string, ssl_context=roots
            )
        assert connection.endpoint is not None
        return ServiceBusClient(connection.endpoint, self.credential, ssl_context=roots)

    @cached_property
    def message_queues(self) -> MessageQueues:
        """Senders to that namespace."""
        from handlers.platform.service_bus import MessageQueues  # noqa: PLC0415 - see the module

        return MessageQueues(self.service_bus)

    @cached_property
    def event_grid(self) -> EventGridTopic:
        """The custom topic for notifications of runs."""
        from azure.core.credentials import AzureKeyCredential  # noqa: PLC0415 - see the module

        from handlers.platform.event_grid import EventGridTopic  # noqa: PLC0415 - see the module

        endpoint = self.settings.required("EventGridTopic__endpoint")
        key = self.settings.values.get("EventGridTopic__key")
        credential = AzureKeyCredential(key) if key else self.credential
        return EventGridTopic(endpoint, credential)

    @cached_property
    def ml(self) -> MLClient:
        """The Azure ML workspace."""
        from handlers.platform.azure_ml import import_azure_ml  # noqa: PLC0415 - see the module

        import_azure_ml()
        from azure.ai.ml import MLClient  # noqa: PLC0415 - see the module

        return MLClient(
            self.credential,
            self.settings.required("AZUREML_SUBSCRIPTION_ID"),
            self.settings.required("AZUREML_RESOURCE_GROUP"),
            self.settings.required("AZUREML_WORKSPACE_NAME"),
            # Without it, the SDK drops the error of a code file's upload and waits forever.
            # `import_azure_ml` disables the progress bars.
            show_progress=True,
            **AZURE_ML_LIMITS_SECONDS,
        )

    @cached_property
    def default_datastore(self) -> AzureBlobDatastore:
        """The workspace's default datastore, to which jobs write their results."""
        return cast("AzureBlobDatastore", self.ml.datastores.get_default())

    @cached_property
    def workspace_blobs(self) -> BlobServiceClient:
        """The account of the workspace's default datastore."""
        return self._blob_service(self.settings.connection("WorkspaceStorage", "blobServiceUri"))

    def _blob_service(self, connection: Connection) -> BlobServiceClient:
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - see the module

        options: dict[str, Any] = {"raw_response_hook": _read_empty_body, **STORAGE_OPTIONS}
        if connection.connection_string is not None:
            return BlobServiceClient.from_connection_string(connection.connection_string, **options)
        assert connection.endpoint is not None
        return BlobServiceClient(connection.endpoint, self.credential, **options)


def _read_empty_body(response: PipelineResponse[Any, Any]) -> None:
    """Return the connection of an empty blob's download to the pool.

    The SDK does not read a body of 0 bytes, so each such download would keep a connection of the
    pool until the garbage collector closes it.
    """
    answer = response.http_response
    if answer.request.method == "GET" and answer.headers.get("Content-Length") == "0":
        answer.internal_response.raw.drain_conn()
