"""Asks the Functions host which functions of the app are in error, and which serve pages.

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
    """The errors and pages of an app's functions."""

    errors: Mapping[str, str]
    """Reasons by the names of the functions in error."""
    pages: Mapping[str, str]
    """URLs of the pages that functions serve, and that browsers open without a key, by function."""


def report_functions(environment: Environment) -> FunctionReport:
    """Ask the Functions host of an environment. Blocks.

    Raises:
        OSError: the host does not respond.
        HTTPException: the host's response is not valid.
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
        reasons = {name: "\n".join(get(f"/{name}/status").get("errors", ())) for name in names}
    return FunctionReport(
        {name: text for name, text in reasons.items() if text}, find_pages(functions)
    )


def find_pages(functions: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the URLs of pages, given the functions of `/admin/functions`. Pure.

    A page is a function with only GET, without a key, and with a route for all files below it.
    """
    reasons: dict[str, str] = {}
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
            reasons[function["name"]] = base
    return reasons
