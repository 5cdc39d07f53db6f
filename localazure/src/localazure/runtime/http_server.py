"""The HTTP servers of the parts, on loopback."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator

from aiohttp import web

from localazure.runtime.environment import LOOPBACK

SHUTDOWN_SECONDS = 5.0
"""How long requests may continue when a part stops."""


@contextlib.asynccontextmanager
async def listening(
    runner: web.BaseRunner, ports: dict[int, ssl.SSLContext | None]
) -> AsyncGenerator[None]:
    """Accept connections while the context lasts. At its end, wait for open requests.

    Args:
        runner: the runner of the application.
        ports: the TLS context of each port; None: no TLS.

    Raises:
        OSError: a port is in use.
    """
    await runner.setup()
    try:
        for port, tls in ports.items():
            await web.TCPSite(runner, LOOPBACK, port, ssl_context=tls).start()
        yield
    finally:
        await runner.cleanup()


def runner_of(application: web.Application) -> web.AppRunner:
    """Return a runner without an access log, which would show keys and signatures in URLs."""
    return web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
