from __future__ import annotations

from collections.abc import Iterator

import pytest

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import BlobStore
from localazure.machinelearning.data.log_upload import APPEND_BYTES
from localazure.machinelearning.serving.collected_lines import CollectedLines
from localazure.runtime.environment import Environment
from localazure.storage_client.endpoint import ERRORS, NotFoundError, StorageError

BLUE, GREEN = ("shop", "blue"), ("shop", "green")
REFUSED_STATUSES = (400, 403, 409)


def folder(deployment: tuple[str, str]) -> BlobPath:
    return BlobPath("data", "/".join(deployment))


class Blobs(BlobStore):
    """Append blobs in memory; requests below some paths fail with a status."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.contents: dict[str, bytes] = {}
        self.failing: dict[str, int | None] = {}
        self.full: set[str] = set()

    def _check(self, target: BlobPath) -> None:
        for path, status in self.failing.items():
            if target.path.startswith(path):
                raise ERRORS.get(status or 0, StorageError)(f"no {target.path}", status)

    def ensure_container(self, target: BlobPath) -> None:
        self._check(target)

    def size(self, target: BlobPath) -> int:
        self._check(target)
        if target.path not in self.contents:
            raise NotFoundError(target.path, 404)
        return len(self.contents[target.path])

    def create_append_blob(self, target: BlobPath) -> None:
        self._check(target)
        self.contents[target.path] = b""

    def append(self, target: BlobPath, content: bytes, *, position: int) -> None:
        if target.path in self.full:
            raise ERRORS[409]("BlockCountExceedsLimit", 409)
        assert self.size(target) == position
        assert len(content) <= APPEND_BYTES
        self.contents[target.path] += content

    def stored(self, deployment: tuple[str, str]) -> list[bytes]:
        """The contents of a deployment's blobs, oldest first."""
        prefix = folder(deployment).path
        return [each for path, each in self.contents.items() if path.startswith(prefix)]


@pytest.fixture
def blobs(environment: Environment) -> Iterator[Blobs]:
    store = Blobs(environment)
    yield store
    store.close()


@pytest.fixture
def lines(blobs: Blobs) -> CollectedLines:
    return CollectedLines(blobs, most_waiting_bytes=10)


def add(lines: CollectedLines, deployment: tuple[str, str], line: bytes) -> None:
    lines.add(deployment, folder(deployment), line)


async def test_lines_are_appended_to_one_blob(lines: CollectedLines, blobs: Blobs) -> None:
    for line in (b"1\n", b"2\n"):
        add(lines, BLUE, line)
        await lines.flush()
    assert (blobs.stored(BLUE), lines.waiting_bytes()) == ([b"1\n2\n"], 0)


@pytest.mark.parametrize("status", REFUSED_STATUSES)
async def test_what_storage_refuses_is_dropped_and_logged_once(
    lines: CollectedLines, blobs: Blobs, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    blobs.failing[folder(BLUE).path] = status
    for _ in range(20):
        add(lines, BLUE, b"blue\n")
        add(lines, GREEN, b"green\n")
        await lines.flush()
    assert (blobs.stored(GREEN), lines.waiting_bytes()) == ([b"green\n" * 20], 0)
    (message,) = {record.getMessage() for record in caplog.records}
    assert "shop/blue: storage refuses collected data" in message
    blobs.failing.clear()
    add(lines, BLUE, b"later\n")
    await lines.flush()
    assert blobs.stored(BLUE)[-1] == b"later\n"


@pytest.mark.parametrize("status", [None, 503])
async def test_an_outage_keeps_the_backlog_of_its_deployment(
    lines: CollectedLines, blobs: Blobs, status: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    blobs.failing[folder(BLUE).path] = status
    for number in range(9):
        add(lines, BLUE, b"b%d\n" % number)
        add(lines, GREEN, b"g%d\n" % number)
        await lines.flush()
    assert blobs.stored(GREEN) == [b"".join(b"g%d\n" % number for number in range(9))]
    blobs.failing.clear()
    await lines.flush()
    assert (blobs.stored(BLUE), lines.waiting_bytes()) == ([b"b0\nb1\nb2\n"], 0)
    waiting, full = (record.getMessage() for record in caplog.records)
    assert "waits for storage" in waiting
    assert "deployment shop/blue: too much collected data waits" in full


async def test_a_full_blob_and_a_deleted_blob_are_continued_in_another(
    lines: CollectedLines, blobs: Blobs
) -> None:
    add(lines, BLUE, b"1\n")
    await lines.flush()
    blobs.full = set(blobs.contents)
    add(lines, BLUE, b"2\n")
    await lines.flush()
    assert blobs.stored(BLUE) == [b"1\n", b"2\n"]
    blobs.contents.clear()
    add(lines, BLUE, b"3\n")
    await lines.flush()
    assert blobs.stored(BLUE) == [b"3\n"]


async def test_a_defect_with_one_folder_does_not_stop_the_others(
    lines: CollectedLines, blobs: Blobs, caplog: pytest.LogCaptureFixture
) -> None:
    add(lines, BLUE, b"blue\n")
    add(lines, GREEN, b"green\n")
    del blobs.full
    await lines.flush()
    assert lines.waiting_bytes() == 0
    assert [record.exc_info is None for record in caplog.records] == [False, False]


async def test_a_long_backlog_is_appended_in_whole_lines(blobs: Blobs) -> None:
    lines = CollectedLines(blobs)
    line = b"x" * (APPEND_BYTES // 2) + b"\n"
    for _ in range(3):
        add(lines, BLUE, line)
    add(lines, BLUE, b"y" * (APPEND_BYTES + 1) + b"\n")
    await lines.flush()
    (stored,) = blobs.stored(BLUE)
    assert stored == line * 3 + b"y" * (APPEND_BYTES + 1) + b"\n"
