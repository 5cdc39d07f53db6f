"""Asks the running Functions host which functions of the app are in error, and why.

Source: https://github.com/Azure/azure-functions-host (FunctionsController)
"""

from __future__ import annotations

import asyncio

import aiohttp

from localazure.runtime.environment import Environment

_TIMEOUT = aiohttp.ClientTimeout(total=10)


async def function_errors(environment: Environment) -> dict[str, str]:
    """The name of each function in error → the reason.

    Args:
        environment: whose Functions host is running.

    Raises:
        aiohttp.ClientError: it does not answer.
    """
    headers = {"x-functions-key": environment.keys.functions_master}
    async with aiohttp.ClientSession(
        environment.functions_url, headers=headers, timeout=_TIMEOUT, raise_for_status=True
    ) as client:

        async def errors(name: str) -> list[str]:
            async with client.get(f"/admin/functions/{name}/status") as response:
                return (await response.json()).get("errors", [])

        async with client.get("/admin/functions") as response:
            names = [str(function["name"]) for function in await response.json()]
        found = await asyncio.gather(*map(errors, names))
    return {name: "\n".join(texts) for name, texts in zip(names, found, strict=True) if texts}
