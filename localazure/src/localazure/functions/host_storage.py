"""Prepares the host's storage account with the host's identity, or fails the start.

The deployed host and its Durable backend first create a container, queues and tables there. The
local engine has its own database, so these stay empty. They are created so that a missing role of
the host's identity is an error at the start, as on Azure.

A connection string grants all access, so nothing is created with one. Sources:
https://learn.microsoft.com/azure/azure-functions/functions-reference#connecting-to-host-storage-with-an-identity,
https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-azure-storage-provider
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import aiohttp

from localazure.functions import logs
from localazure.functions.configuration.connections import identity
from localazure.functions.configuration.storage_connection import (
    DEFAULT_CONNECTION,
    HOSTS_CONTAINER,
    find_endpoint,
)
from localazure.functions.errors import AppLoadError
from localazure.storage_client import blobs
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import ConflictError, Request, Service, StorageError

_LOG = logging.getLogger(logs.HOST_LOGGER)

_REFUSED: Final = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


async def make_ready(settings: Mapping[str, str], hub_name: str | None) -> None:
    """Create what the host and its Durable backend need in the account of AzureWebJobsStorage.

    `hub_name` is None if the app has no task hub in Azure Storage.

    Raises:
        AppLoadError: the identity lacks a role; names the service and its error.
    """
    needed = {Service.BLOB: blobs.create_container(HOSTS_CONTAINER)}
    if hub_name is not None:
        table = json.dumps({"TableName": f"{hub_name}Instances"}).encode()
        headers = {"accept": "application/json", "content-type": "application/json"}
        needed[Service.QUEUE] = Request("PUT", f"{hub_name.lower()}-control-00")
        needed[Service.TABLE] = Request("POST", "Tables", headers=headers, body=table)
    try:
        if not find_endpoint(DEFAULT_CONNECTION, Service.BLOB, settings).needs_identity:
            return
    except ValueError:
        return  # the app has no storage account
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        identity(DEFAULT_CONNECTION, settings) as credential,
    ):

        async def create(service: Service, request: Request) -> None:
            endpoint = find_endpoint(DEFAULT_CONNECTION, service, settings)
            await _create(StorageClient(session, endpoint, credential), request)

        await asyncio.gather(*(create(*each) for each in needed.items()))


async def _create(client: StorageClient, request: Request) -> None:
    service = client.endpoint.service
    try:
        await client.send(request)
    except ConflictError:
        return  # it exists already
    except StorageError as error:
        if error.status in _REFUSED:
            raise AppLoadError(
                f"{DEFAULT_CONNECTION}: the {service} service refuses the identity of "
                f"the host: {error}. Give it a role on the account: Storage Blob Data Owner, and "
                "for Durable Functions Storage Queue Data Contributor and Storage Table Data "
                "Contributor"
            ) from None
        _LOG.warning("%s: the %s service: %s", DEFAULT_CONNECTION, service, error)
