"""Blob storage over TLS, for the uploads and downloads that the azure-ai-ml SDK makes by itself.

The SDK builds `https://{account}.blob.{suffix}` from the cloud's metadata, whatever a datastore's
endpoint is. A laptop has no DNS for such a host. So the suffix continues the URL in a way that
makes `{account}.blob.localhost` the user name of it (RFC 3986, section 3.2.1), this machine the
host, and the account the first part of the path, as in every emulator's URLs. The storage SDK
keeps that path because the name has no `.blob.core.` in it.

Bytes are passed on unchanged to the blob listener of the part `storage`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator

from localazure.runtime.environment import LOOPBACK, STORAGE_ACCOUNT, Environment, Ports

CHUNK_BYTES = 256 * 1024
# A client that keeps its connection for later does not answer the end of TLS.
TLS_SHUTDOWN_SECONDS = 0.2


def storage_suffix(environment: Environment) -> str:
    """`suffixes.storage` of the cloud's metadata."""
    return f"localhost@{LOOPBACK}:{environment.ports.blob_tls}/{STORAGE_ACCOUNT}"


@contextlib.asynccontextmanager
async def relaying(ports: Ports, context: ssl.SSLContext) -> AsyncGenerator[None]:
    """Pass connections to `ports.blob_tls` on to `ports.blob`.

    A connection is closed at once while storage is down; the SDK then connects again.

    Raises:
        OSError: the port is taken.
    """
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_relay(reader, writer, ports.blob))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(
        accept, LOOPBACK, ports.blob_tls, ssl=context, ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS
    )
    try:
        yield
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, blob_port: int
) -> None:
    """Copy both directions until either side ends."""
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_close, writer)
        with contextlib.suppress(OSError):
            storage_reader, storage_writer = await asyncio.open_connection(LOOPBACK, blob_port)
            stack.push_async_callback(_close, storage_writer)
            copies = [
                asyncio.create_task(_copy(reader, storage_writer)),
                asyncio.create_task(_copy(storage_reader, writer)),
            ]
            stack.callback(lambda: [copy.cancel() for copy in copies])
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(CHUNK_BYTES):
            writer.write(content)
            await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
