"""Uploads and downloads between a job's folders and blobs, with the real storage part."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.local_workspace import Local, fault
from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import BlobStore
from localazure.machinelearning.data.cache import BlobCache, NameTooLongError, SourceNotFoundError
from localazure.machinelearning.data.log_upload import LogUpload
from localazure.machinelearning.data.output_sync import BLOCK_BYTES, FileState, OutputSync
from localazure.runtime.environment import Environment
from localazure.storage_client.blobs import Blob
from localazure.storage_client.endpoint import PreconditionError


@pytest.fixture
def store(local: Local) -> Generator[BlobStore]:
    opened = BlobStore(local.environment)
    yield opened
    opened.close()


@pytest.fixture
def target() -> BlobPath:
    return BlobPath("landing", f"moves/{uuid.uuid4().hex}")


def names(store: BlobStore, target: BlobPath) -> list[str]:
    return sorted(file.path for file in store.list(target))


def content(store: BlobStore, target: BlobPath, path: str) -> bytes:
    (file,) = store.list(target.child(path))
    with tempfile.NamedTemporaryFile() as out:
        store.download(target, file, Path(out.name))
        return Path(out.name).read_bytes()


def opened(store: BlobStore, target: BlobPath, folder: Path) -> OutputSync:
    return OutputSync(store, target, folder / "out", folder / "state" / "out.json")


def test_a_file_that_is_being_written_is_uploaded_later(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    sync = opened(store, target, tmp_path)
    with (tmp_path / "out" / "model").open("w") as file:
        for part in ("one ", "two "):
            file.write(part)
            file.flush()
            sync.push(is_final=False)
            assert names(store, target) == []
    sync.push(is_final=False)
    assert content(store, target, "model") == b"one two "
    (tmp_path / "out" / "model").unlink()
    (tmp_path / "out" / "sub").mkdir()
    (tmp_path / "out" / "sub" / "new").write_text("")
    sync.push(is_final=True)
    assert names(store, target) == ["sub/new"]


@pytest.mark.parametrize("size", [3, BLOCK_BYTES + 1])
def test_a_file_that_changes_while_it_is_read_leaves_the_blob_as_it_was(
    store: BlobStore, target: BlobPath, tmp_path: Path, size: int
) -> None:
    sync = opened(store, target, tmp_path)
    file = tmp_path / "out" / "model"
    file.write_bytes(b"a" * size)
    sync.push(is_final=True)
    seen = file.stat()
    file.write_bytes(b"b" * size)
    # Simulates a scan before the write and an upload after it.
    stale = FileState(seen.st_size, seen.st_mtime_ns, seen.st_ino)
    sync._upload("model", stale)  # pyright: ignore[reportPrivateUsage] - a test cannot time the race
    assert content(store, target, "model") == b"a" * size
    sync.push(is_final=True)
    assert content(store, target, "model") == b"b" * size


def test_an_attempt_after_a_crash_keeps_the_outputs_of_the_previous_one(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    store.upload(target.child("theirs"), b"1")
    first = opened(store, target, tmp_path)
    first.download()
    assert (tmp_path / "out" / "theirs").read_bytes() == b"1"
    (tmp_path / "out" / "ours").write_text("saved, not uploaded")
    store.upload(target.child("theirs"), b"2")
    second = opened(store, target, tmp_path)
    second.push(is_final=True)
    second.download()
    assert content(store, target, "ours") == b"saved, not uploaded"
    assert (tmp_path / "out" / "theirs").read_bytes() == b"2"
    assert names(store, target) == ["ours", "theirs"]


def test_files_of_deleted_blobs_are_deleted(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    store.upload(target.child("a"), b"1")
    opened(store, target, tmp_path).download()
    store.delete(target.child("a"))
    opened(store, target, tmp_path).download()
    assert not (tmp_path / "out" / "a").exists()


def test_links_and_neighbours_are_left_alone(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    store.upload(target.child("neighbour"), b"1")
    sync = OutputSync(store, target, tmp_path / "out", tmp_path / "s" / "out.json", only="report")
    sync.download()
    assert not (tmp_path / "out" / "neighbour").exists()
    (tmp_path / "out" / "report").write_text("r")
    (tmp_path / "out" / "other").write_text("o")
    (tmp_path / "out" / "link").symlink_to("/etc/hostname")
    sync.push(is_final=True)
    assert names(store, target) == ["neighbour", "report"]


def test_the_same_content_is_downloaded_once(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    store.upload(target.child("7/a"), b"seven")
    store.upload(target.child("empty"), b"")
    store.upload(BlobPath(target.container, f"{target.path}-other/b"), b"not ours")
    cache = BlobCache(tmp_path / "cache", store)
    assert cache.materialize(target, tmp_path / "one", is_mount=True) == 2
    cache.materialize(target, tmp_path / "two", is_mount=True)
    cache.materialize(target, tmp_path / "copy", is_mount=False)
    first, second = tmp_path / "one" / "7" / "a", tmp_path / "two" / "7" / "a"
    assert first.stat().st_ino == second.stat().st_ino
    assert first.stat().st_mode & 0o222 == 0
    copy = tmp_path / "copy" / "7" / "a"
    copy.write_text("mine")
    assert first.read_bytes() == b"seven"
    store.upload(target.child("7/a"), b"changed")
    cache.materialize(target, tmp_path / "two", is_mount=True)
    assert (first.read_bytes(), second.read_bytes()) == (b"seven", b"changed")


def test_a_cached_file_that_was_tampered_with_is_fetched_again(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    store.upload(target.child("a"), b"good")
    cache = BlobCache(tmp_path / "cache", store)
    cache.materialize(target, tmp_path / "one", is_mount=True)
    (tmp_path / "one" / "a").chmod(0o600)
    (tmp_path / "one" / "a").write_text("evil")
    cache.materialize(target, tmp_path / "two", is_mount=True)
    assert (tmp_path / "two" / "a").read_bytes() == b"good"


def test_a_single_blob_and_a_missing_one(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    store.upload(target.child("a.txt"), b"1")
    cache = BlobCache(tmp_path / "cache", store)
    assert cache.materialize(target.child("a.txt"), tmp_path / "one", is_mount=True) == 1
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["a.txt"]
    with pytest.raises(SourceNotFoundError, match="holds nothing"):
        cache.materialize(target.child("absent"), tmp_path / "two", is_mount=True)


class Changing(BlobStore):
    """Storage in which a blob is overwritten, and another deleted, after it was listed."""

    def __init__(self, environment: Environment, target: BlobPath) -> None:
        super().__init__(environment)
        self._target = target
        self._left = 2

    def download(self, source: BlobPath, blob: Blob, target: Path) -> None:
        if blob.path == "changes" and self._left:
            self._left -= 1
            self.upload(self._target.child("changes"), f"new {self._left}".encode())
        if blob.path == "goes":
            self.delete(self._target.child("goes"))
        super().download(source, blob, target)


def test_a_mount_shows_what_is_there_and_a_download_needs_what_was_listed(
    local: Local, store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    for name in ("changes", "goes", "stays"):
        store.upload(target.child(name), b"old")
    with contextlib.closing(Changing(local.environment, target)) as changing:
        BlobCache(tmp_path / "a", changing).materialize(target, tmp_path / "one", is_mount=True)
    found = {file.name: file.read_bytes() for file in (tmp_path / "one").iterdir()}
    assert found == {"changes": b"new 0", "stays": b"old"}
    with (
        contextlib.closing(Changing(local.environment, target)) as changing,
        pytest.raises(PreconditionError, match="changes: ConditionNotMet"),
    ):
        BlobCache(tmp_path / "b", changing).materialize(target, tmp_path / "two", is_mount=False)


@pytest.mark.parametrize("name", ["a" * 256, f"{'b' * 256}/c", ("😀" * 62 + "/") * 16 + "😀" * 15])
def test_a_mount_hides_a_name_that_no_file_can_have_and_a_download_fails(
    store: BlobStore, target: BlobPath, tmp_path: Path, name: str
) -> None:
    blob = Blob(target.child(name).path, 0, "etag", datetime.now(UTC), name)
    store.upload(target.child("stays"), b"1")
    listed = [*store.list(target), blob]
    cache = BlobCache(tmp_path / "cache", store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "list", Mock(return_value=listed))
        assert cache.materialize(target, tmp_path / "one", is_mount=True) == 2
        with pytest.raises(NameTooLongError, match=name[:50]):
            cache.materialize(target, tmp_path / "two", is_mount=False)
    assert [file.name for file in (tmp_path / "one").rglob("*") if file.is_file()] == ["stays"]


def test_logs_are_appended_and_never_twice(
    store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    log = tmp_path / "std_log.txt"
    log.write_text("one\n")
    LogUpload(store, target, tmp_path).push(is_final=False)
    with log.open("a") as file:
        file.write("two\n")
    again = LogUpload(store, target, tmp_path)  # after a crash, it starts at the blob's size
    again.push(is_final=False)
    # Simulates that the response to the last append was lost.
    again._blobs["std_log.txt"]._position = 4  # pyright: ignore[reportPrivateUsage] - a test cannot lose the response
    with log.open("a") as file:
        file.write("three\n")
    again.push(is_final=True)
    assert content(store, target, "std_log.txt") == b"one\ntwo\nthree\n"


def test_failed_files_do_not_stop_the_others(
    local: Local, store: BlobStore, target: BlobPath, tmp_path: Path
) -> None:
    for number in range(20):
        store.upload(target.child(f"{number}"), b"content")
    rule = {"part": "storage", "operation": "blob/*/read", "fault": "error", "probability": 0.3}
    cache = BlobCache(tmp_path / "cache", store)
    with fault(local, **rule):
        found = cache.materialize(target, tmp_path / "one", is_mount=True)
    assert found == 20
    assert {file.read_bytes() for file in (tmp_path / "one").iterdir()} == {b"content"}
