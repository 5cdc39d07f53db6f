"""kill -9 of the part, of Azurite, and of both: acknowledged changes and their events are kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from functools import partial

import psutil
import pytest
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import ContainerClient
from azure.storage.queue.aio import QueueServiceClient

from harness.waiting import eventually
from localazure.runtime.environment import Environment
from localazure.storage.azurite_process import end_leftover
from localazure.storage.service import serve


def landing(environment: Environment) -> ContainerClient:
    return ContainerClient.from_connection_string(
        environment.storage_connection_string(), "landing", retry_total=0
    )


def azurite_of(environment: Environment) -> psutil.Process:
    noted = json.loads((environment.state / "storage" / "azurite.pid").read_text())
    return psutil.Process(noted["pid"])


async def names_in(container: ContainerClient) -> set[str]:
    return {name async for name in container.list_blob_names()}


@contextlib.asynccontextmanager
async def leftover_azurite(
    environment: Environment,
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a process that looks like the Azurite of a killed part; yield it.

    Its process id is in the part's file. A process with another command line must survive.
    """
    location = environment.part_folder("storage") / "azurite"
    sleep = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
    leftover = await asyncio.create_subprocess_exec(*sleep, str(location))
    stranger = await asyncio.create_subprocess_exec(*sleep)
    pid_file = environment.part_folder("storage") / "azurite.pid"
    try:
        for process in (stranger, leftover):
            created_seconds = psutil.Process(process.pid).create_time()
            pid_file.write_text(
                json.dumps({"pid": process.pid, "created_seconds": created_seconds})
            )
            if process is stranger:
                end_leftover(pid_file, location)
        yield leftover
        assert stranger.returncode is None
    finally:
        for process in (leftover, stranger):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def is_uploaded(container: ContainerClient, name: str) -> bool:
    """Upload a blob, unless storage refuses it with a status that clients retry."""
    with contextlib.suppress(AzureError):
        await container.upload_blob(name, b"y", overwrite=True)
        return True
    return False


@pytest.mark.parametrize("file", ["azurite.log", "azurite.pid"])
async def test_azurite_is_started_again_as_soon_as_it_can_be(
    environment: Environment, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    """Of the files, one is opened before the process starts, and one afterwards."""
    async with serve(environment), landing(environment) as container:
        azurite = azurite_of(environment)
        path = environment.part_folder("storage") / file
        path.unlink()
        path.mkdir()  # as on a full disk, it cannot be written
        azurite.kill()
        await eventually(lambda: "running Azurite failed" in caplog.text)
        assert "IsADirectoryError" in caplog.text
        path.rmdir()
        await eventually(partial(is_uploaded, container, "after"))
        location = str(environment.part_folder("storage") / "azurite")
        (only,) = [each for each in psutil.Process().children() if location in each.cmdline()]
        assert only == azurite_of(environment)


async def test_kill_9_of_azurite_loses_nothing_and_the_part_starts_it_again(
    environment: Environment,
) -> None:
    """The start ends an Azurite that the kernel did not end with its parent."""
    connection = environment.storage_connection_string()
    async with (
        leftover_azurite(environment) as leftover,
        serve(environment),
        landing(environment) as container,
        QueueServiceClient.from_connection_string(connection) as queues,
    ):
        await leftover.wait()
        await queues.create_queue("tasks")
        for number in range(20):
            await container.upload_blob(f"k/{number}", b"x" * number)
        await container.delete_blob("k/3")
        blocks = container.get_blob_client("uncommitted")
        await blocks.stage_block("0001", b"staged")
        first = azurite_of(environment)
        first.kill()
        # A request waits meanwhile, or is refused with a status that clients retry.
        await eventually(partial(is_uploaded, container, "after"))
        assert azurite_of(environment).pid != first.pid
        expected = {f"k/{number}" for number in range(20)} - {"k/3"} | {"after"}
        assert await names_in(container) == expected
        await blocks.commit_block_list([BlobBlock("0001")])
        downloader = await blocks.download_blob()
        assert await downloader.readall() == b"staged"
        assert [queue.name async for queue in queues.list_queues()] == ["tasks"]
