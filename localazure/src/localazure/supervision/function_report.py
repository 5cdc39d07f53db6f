"""Asks the Functions host which functions of the app are in error.

Source: https://github.com/Azure/azure-functions-host (FunctionsController)
"""

from __future__ import annotations

import contextlib
import json
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from localazure.runtime.environment import LOOPBACK, Environment

_TIMEOUT_SECONDS = 10.0


def errors_of_functions(environment: Environment) -> dict[str, str]:
    """Return the reasons by the names of the functions in error. Blocks.

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

        names = [str(function["name"]) for function in get("")]
        reasons = {name: "\n".join(get(f"/{name}/status").get("errors", ())) for name in names}
    return {name: text for name, text in reasons.items() if text}
