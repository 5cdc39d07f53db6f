"""Asks the running Functions host which functions of the app are in error, and which serve pages.

Source: https://github.com/Azure/azure-functions-host (FunctionsController)
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

from localazure.runtime.environment import LOOPBACK, Environment

_TIMEOUT_SECONDS = 10.0
_CATCH_ALL = re.compile(r"/\{\*\w+\}$")


class FunctionReport(NamedTuple):
    """Of an app's functions."""

    errors: Mapping[str, str]
    """The name of each function in error → the reason."""
    pages: Mapping[str, str]
    """Function → the address of the page that it serves, which a browser opens without a key."""


def report_functions(environment: Environment) -> FunctionReport:
    """Ask the Functions host of an environment; blocks meanwhile.

    Raises:
        OSError: it does not answer.
        HTTPException: it does not answer as it should.
    """
    host = HTTPConnection(LOOPBACK, environment.ports.functions, timeout=_TIMEOUT_SECONDS)
    headers = {"x-functions-key": environment.keys.functions_master}
    with contextlib.closing(host):

        def get(path: str) -> Any:
            host.request("GET", f"/admin/functions{path}", headers=headers)
            response = host.getresponse()
            if response.status != HTTPStatus.OK:
                raise HTTPException(f"{path} has the status {response.status}")
            return json.load(response)

        functions = get("")
        names = [str(function["name"]) for function in functions]
        found = {name: "\n".join(get(f"/{name}/status").get("errors", ())) for name in names}
    return FunctionReport(
        {name: text for name, text in found.items() if text}, find_pages(functions)
    )


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
