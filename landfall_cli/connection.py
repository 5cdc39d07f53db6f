"""Where the API is, and the key for it: from options, the environment, or the laptop's runtime."""

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
    """Nothing says where the API is; the message says how to."""


@dataclass(frozen=True)
class Connection:
    """The function app's address, without `/api`, and a function key."""

    url: str
    key: str | None
    source: str
    """Where they are from, for people."""
    scope: str | None = None
    """Of the Entra token that requests carry, such as `api://<client id>/.default`."""


def find_connection(
    url: str | None,
    key: str | None,
    environment: Mapping[str, str],
    folder: Path,
    *,
    scope: str | None = None,
) -> Connection:
    """The connection that options give, or else the environment, or else what runs on this laptop.

    Args:
        url: of option `--url`.
        key: of option `--key`.
        environment: of the process.
        folder: where `.localazure/endpoints.json` is looked for, and in the folders above.
        scope: of option `--scope`.

    Raises:
        NotConfigured: there is none of them.
    """
    key = key or environment.get(KEY_VARIABLE)
    if url or environment.get(URL_VARIABLE):
        found = url or environment[URL_VARIABLE]
        source = "--url" if url else URL_VARIABLE
        scope = scope or environment.get(SCOPE_VARIABLE)
        return Connection(found.rstrip("/").removesuffix("/api"), key, source, scope)
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
