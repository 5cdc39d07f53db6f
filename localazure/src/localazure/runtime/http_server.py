"""The HTTP servers of the parts, on loopback."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator

from aiohttp import web

from localazure.runtime.environment import LOOPBACK

SHUTDOWN_SECONDS = 5.0
"""How long requests may run on when a part ends."""


@contextlib.asynccontextmanager
async def listening(
    runner: web.BaseRunner, ports: dict[int, ssl.SSLContext | None]
) -> AsyncGenerator[None]:
    """Accept connections while the context lasts; at its end all requests have been answered.

    Args:
        runner: of the application.
        ports: each with its TLS, None in the clear.

    Raises:
        OSError: a port is taken.
    """
    await runner.setup()
    try:
        for port, tls in ports.items():
            await web.TCPSite(runner, LOOPBACK, port, ssl_context=tls).start()
        yield
    finally:
        await runner.cleanup()


def runner_of(application: web.Application) -> web.AppRunner:
    """The runner of an application. An access log would show keys and signatures of addresses."""
    return web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
