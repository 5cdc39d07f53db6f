"""Storage tables: the operations that bindings need (query entities, insert an entity).

Source: https://learn.microsoft.com/rest/api/storageservices/table-service-rest-api
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from localazure.storage_client.rest import StorageError, StorageRest

_HEADERS: Final = {
    "accept": "application/json;odata=nometadata",
    "dataserviceversion": "3.0;NetFx",
}
_JSON: Final = {"content-type": "application/json"}


class StorageTable:
    """A client of one table."""

    def __init__(self, service: StorageRest, name: str) -> None:
        self._service = service
        self._name = name

    async def query(self, filter_text: str, limit: int | None) -> list[dict[str, Any]]:
        """At most `limit` entities that match an OData filter; none if the table is missing.

        See `StorageRest.request` for the errors of this method and of `insert`.
        """
        found: list[dict[str, Any]] = []
        query = {"$filter": filter_text} if filter_text else {}
        while limit is None or len(found) < limit:
            if limit is not None:
                query["$top"] = str(min(limit - len(found), 1000))
            try:
                answer = await self._service.request(
                    "GET", f"/{quote(self._name)}()", query, headers=_HEADERS
                )
            except StorageError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return []
                raise
            found += json.loads(answer.body)["value"]
            # aiohttp's headers ignore case.
            partition = answer.headers.get("x-ms-continuation-NextPartitionKey")
            if partition is None:
                break
            query["NextPartitionKey"] = partition
            if row := answer.headers.get("x-ms-continuation-NextRowKey"):
                query["NextRowKey"] = row
        return found

    async def insert(self, entity: Mapping[str, Any]) -> None:
        """Insert an entity; create the table if it is missing, as the real host does."""
        path, body = f"/{quote(self._name)}", json.dumps(entity).encode()
        headers = {**_HEADERS, **_JSON, "prefer": "return-no-content"}
        try:
            await self._service.request("POST", path, headers=headers, body=body)
        except StorageError as error:
            if error.code != "TableNotFound":
                raise
            await self._create()
            await self._service.request("POST", path, headers=headers, body=body)

    async def _create(self) -> None:
        body = json.dumps({"TableName": self._name}).encode()
        try:
            await self._service.request("POST", "/Tables", headers={**_HEADERS, **_JSON}, body=body)
        except StorageError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise


def quoted(text: str) -> str:
    """Quote text as a string literal of an OData filter."""
    return "'" + text.replace("'", "''") + "'"
