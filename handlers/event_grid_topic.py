"""Publish CloudEvents to a custom topic of Event Grid, with a bounded patience.

azure-eventgrid's client cannot have its retries and timeouts bounded: what is given to its
constructor is dropped, and what is given to `send` is taken for fields of the event, with a warning
for each. This is the one request that it would make, through the pipeline of azure-core.
https://learn.microsoft.com/azure/event-grid/post-to-custom-topic
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from azure.core import PipelineClient
from azure.core.credentials import AzureKeyCredential, TokenCredential
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import (
    AzureKeyCredentialPolicy,
    BearerTokenCredentialPolicy,
    RequestIdPolicy,
    RetryPolicy,
    UserAgentPolicy,
)
from azure.core.rest import HttpRequest

API_VERSION = "2018-01-01"
KEY_HEADER = "aeg-sas-key"
TOKEN_SCOPE = "https://eventgrid.azure.net/.default"  # noqa: S105 - the name of a scope
CONTENT_TYPE = "application/cloudevents-batch+json; charset=utf-8"

# The caller's ladder is the patience; retries in here would hold the queue up for minutes.
RETRIES = 1
TIMEOUT_SECONDS = 15.0
_SUCCESS = 200


class EventGridTopic:
    """One custom topic. Nothing connects before the first event; may be used from any thread."""

    def __init__(self, endpoint: str, credential: AzureKeyCredential | TokenCredential) -> None:
        self._endpoint = endpoint
        authentication = (
            AzureKeyCredentialPolicy(credential, KEY_HEADER)
            if isinstance(credential, AzureKeyCredential)
            else BearerTokenCredentialPolicy(credential, TOKEN_SCOPE)
        )
        # Redirects are not followed: the key is for this host alone.
        self._client: PipelineClient[Any, Any] = PipelineClient(
            endpoint,
            policies=[
                RequestIdPolicy(),
                UserAgentPolicy(base_user_agent="landfall"),
                RetryPolicy(retry_total=RETRIES),
                authentication,
            ],
        )

    def publish(self, event: Mapping[str, Any]) -> None:
        """Send one CloudEvent, as its JSON object; returns when Event Grid has taken it.

        Raises:
            azure.core.exceptions.HttpResponseError: it was refused, or Event Grid is in trouble.
            azure.core.exceptions.AzureError: no answer came.
        """
        request = HttpRequest(
            "POST",
            self._endpoint,
            params={"api-version": API_VERSION},
            headers={"Content-Type": CONTENT_TYPE},
            json=[event],
        )
        response = self._client.send_request(
            request, connection_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS
        )
        if response.status_code != _SUCCESS:
            raise HttpResponseError(response=response)

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._client.__exit__(*details)
