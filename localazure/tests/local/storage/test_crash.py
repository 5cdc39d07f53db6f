"""kill -9 of the part, of Azurite, and of both: acknowledged changes and their events are kept."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import psutil
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import ContainerClient
from azure.storage.filedatalake.aio import FileSystemClient
from azure.storage.queue.aio import QueueServiceClient

from harness.part_process import PartProcess
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


async def test_kill_9_of_the_part_under_load(environment: Environment, new_topic: Any) -> None:
    """Event Grid starts later: events wait for it, even across the kill."""
    acknowledged: set[str] = set()

    async def write_until_it_dies(part: PartProcess, prefix: str) -> None:
        async with landing(environment) as container:
            for number in range(1000):
                name = f"{prefix}/{number}"
                try:
                    await container.upload_blob(name, name.encode())
                except AzureError:
                    return
                acknowledged.add(name)
                if number == 15:
                    part.kill()

    with PartProcess("storage", environment.state) as part:
        azurite = azurite_of(environment)
        async with asyncio.TaskGroup() as group:
            for writer in range(3):
                group.create_task(write_until_it_dies(part, str(writer)))
    # Only the kernel can have ended it.
    await asyncio.to_thread(psutil.wait_procs, [azurite], 10)
    assert not azurite.is_running()
    with PartProcess("storage", environment.state):
        async with (
            new_topic(environment).listening() as topic,
            landing(environment) as container,
        ):
            assert len(acknowledged) > 30
            written = await names_in(container)
            assert acknowledged <= written
            for name in sorted(acknowledged)[::7]:
                downloader = await container.download_blob(name)
                assert await downloader.readall() == name.encode()

            await topic.wait_for(lambda: len(topic.events) >= len(written))
    announced = [event["subject"].partition("/blobs/")[2] for event in topic.events]
    assert sorted(announced) == sorted(written)  # even those that were not acknowledged
    sequencer_of = {event["id"]: event["data"]["sequencer"] for event in topic.events}
    assert len(set(sequencer_of.values())) == len(sequencer_of)


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
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(AzureError):
                    await container.upload_blob("after", b"y", overwrite=True)
                    break
                await asyncio.sleep(0.05)
        assert azurite_of(environment).pid != first.pid
        expected = {f"k/{number}" for number in range(20)} - {"k/3"} | {"after"}
        assert await names_in(container) == expected
        await blocks.commit_block_list([BlobBlock("0001")])
        downloader = await blocks.download_blob()
        assert await downloader.readall() == b"staged"
        assert [queue.name async for queue in queues.list_queues()] == ["tasks"]


FILES = 1000


def multiply(environment: Environment, directory: str) -> None:
    """Copy a file under many names of its directory, in a journal that Azurite reads."""
    folder = environment.part_folder("storage") / "azurite"
    records = [
        json.loads(line.split(" ", 2)[2])  # after its length and checksum
        for journal in folder.glob("__azurite_db_blob__.json.journal-*")
        for line in journal.read_text().splitlines()
    ]
    records = [each for record in records for each in record.get("together", [record])]
    name = f"{directory}/0"
    file = next(each for each in reversed(records) if each.get("put", {}).get("name") == name)
    lines: list[str] = []
    for number in range(1, FILES):
        copy = {**file["put"], "name": f"{directory}/{number}", "$loki": 1000 + number}
        text = json.dumps({**file, "put": copy})
        checksum = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
        lines.append(f"{len(text)} {checksum} {text}\n")
    (folder / "__azurite_db_blob__.json.journal-1000").write_text("".join(lines))


async def directory_of_all_files(filesystem: FileSystemClient) -> str:
    """Wait for Azurite, list all files once, and return the directory that has them."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(AzureError):
                paths = [path.name async for path in filesystem.get_paths()]
                files = [path for path in paths if "/" in path]
                (directory,) = {path.partition("/")[0] for path in paths}
                assert len(files) == FILES
                return directory


async def test_a_directory_is_renamed_whole_or_not_at_all(
    environment: Environment, topic: Any
) -> None:
    text = environment.storage_connection_string("lake")
    async with (
        serve(environment),
        FileSystemClient.from_connection_string(text, "landing", retry_total=0) as filesystem,
    ):
        await filesystem.get_file_client("0/0").upload_data(b"content", overwrite=True)
        multiply(environment, "0")
        azurite_of(environment).kill()
        assert await directory_of_all_files(filesystem) == "0"
        directory: Any = filesystem.get_directory_client("0")
        renaming = asyncio.create_task(directory.rename_directory("landing/1"))
        assert await directory_of_all_files(filesystem) in {"0", "1"}
        renaming = asyncio.create_task((await renaming).rename_directory("landing/2"))
        await asyncio.sleep(0.05)
        azurite_of(environment).kill()
        with contextlib.suppress(AzureError):
            await renaming
        found = await directory_of_all_files(filesystem)
        assert found in {"1", "2"}
        file = filesystem.get_file_client(f"{found}/{FILES - 1}")
        assert await (await file.download_file()).readall() == b"content"

    def renames() -> list[str]:
        apis = [event["data"]["api"] for event in topic.events]
        return [each for each in apis if each == "RenameDirectory"]

    await topic.wait_for(lambda: len(renames()) == int(found))
