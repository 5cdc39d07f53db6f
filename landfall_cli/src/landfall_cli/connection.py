"""Find the API's address and key: from options, the environment, or localazure on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

URL_VARIABLE = "LANDFALL_URL"
KEY_VARIABLE = "LANDFALL_KEY"
SCOPE_VARIABLE = "LANDFALL_SCOPE"
ENDPOINTS = Path(".localazure") / "endpoints.json"


class NotConfigured(Exception):
    """The API's address is unknown; the message says how to set it."""


@dataclass(frozen=True)
class Connection:
    """The function app's address, without `/api`, and the caller's credentials."""

    url: str
    key: str | None
    source: str
    """The source of the address, for messages."""
    scope: str | None = None
    """The scope of the requests' Entra token, such as `api://<client id>/.default`."""


def find_connection(
    url: str | None,
    key: str | None,
    environment: Mapping[str, str],
    folder: Path,
    *,
    scope: str | None = None,
) -> Connection:
    """Find the connection: by the options, the environment, or localazure on this machine.

    Args:
        url: the value of option `--url`.
        key: the value of option `--key`.
        environment: the environment of the process.
        folder: `.localazure/endpoints.json` is searched here and in the folders above.
        scope: the value of option `--scope`.

    Raises:
        NotConfigured: none of them gives an address.
    """
    key = key or environment.get(KEY_VARIABLE)
    if url or environment.get(URL_VARIABLE):
        address = url or environment[URL_VARIABLE]
        source = "--url" if url else URL_VARIABLE
        scope = scope or environment.get(SCOPE_VARIABLE)
        return Connection(address.rstrip("/").removesuffix("/api"), key, source, scope)
    for place in (folder, *folder.parents):
        file = place / ENDPOINTS
        if file.is_file():
            functions = json.loads(file.read_text("utf-8")).get("functions")
            if functions is not None:
                return Connection(functions["base_url"], functions["function_key"], str(file))
    raise NotConfigured(
        f"it is not known where the API is: set {URL_VARIABLE} and {KEY_VARIABLE} (or --url and "
        f"--key), or run this in the folder of an app that `make up` has started"
    )
