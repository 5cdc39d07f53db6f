"""The web pages of a running app: what a person can open in a browser without a key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import aiohttp

from localazure.runtime.environment import Environment

_TIMEOUT = aiohttp.ClientTimeout(total=10)
_CATCH_ALL = re.compile(r"/\{\*\w+\}$")


async def page_links(environment: Environment) -> dict[str, str]:
    """Function → the address of the page that it serves.

    Raises:
        aiohttp.ClientError: the Functions host does not answer.
    """
    headers = {"x-functions-key": environment.keys.functions_master}
    async with (
        aiohttp.ClientSession(
            environment.functions_url, headers=headers, timeout=_TIMEOUT, raise_for_status=True
        ) as client,
        client.get("/admin/functions") as response,
    ):
        return find_pages(await response.json())


def find_pages(functions: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The pages among functions as `/admin/functions` describes them. Pure.

    A page is what is read without a key, and serves every file below its route.
    """
    found: dict[str, str] = {}
    for function in functions:
        url = function["invoke_url_template"]
        trigger = next(
            (each for each in function["config"]["bindings"] if each["type"] == "httpTrigger"), None
        )
        if trigger is None or url is None or function["isDisabled"]:
            continue
        is_open = str(trigger.get("authLevel", "")).lower() == "anonymous"
        reads = [each.lower() for each in trigger.get("methods") or ()] == ["get"]
        base = _CATCH_ALL.sub("", url)
        if is_open and reads and base != url and "{" not in base:
            found[function["name"]] = base
    return found
