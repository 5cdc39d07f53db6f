from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from trainers.data.shard_cache import ShardCache
from trainers.data.shard_formats import FORMATS, Row
from trainers.data.shard_index import Shard
from trainers.errors import DataChanged, LaunchInvalid


def make_shards(folder: Path, count: int) -> list[Shard]:
    folder.mkdir()
    shards: list[Shard] = []
    for number in range(count):
        rows = [Row(path=f"{number}", label="a", held_out=False, content=bytes([number]) * 1000)]
        content, offsets = FORMATS["tfrecord"].encode([rows])
        name = f"shard-{number}.tfrecord"
        (folder / name).write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        shards.append(
            Shard(
                name=name,
                size=len(content),
                sha256=sha256,
                train=1,
                held_out=0,
                offsets=tuple(offsets),
            )
        )
    return shards


def read(cache: ShardCache, shard: Shard) -> int:
    return cache.read(shard, range(1))[0].content[0]


def copies(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir() if path.suffix == ".tfrecord"}


def test_a_copy_serves_when_the_source_is_gone(tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "mount", 2)
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=tmp_path / "copies", max_bytes=10**6)
    assert [read(cache, shard) for shard in shards] == [0, 1]
    for shard in shards:
        (tmp_path / "mount" / shard.name).unlink()
    other_rank = ShardCache(
        tmp_path / "mount", "tfrecord", folder=tmp_path / "copies", max_bytes=10**6
    )
    assert [read(other_rank, shard) for shard in shards] == [0, 1]


def test_the_least_recently_used_makes_room(tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "mount", 4)
    room = 3 * shards[0].size
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=tmp_path / "copies", max_bytes=room)
    for age, shard in enumerate(shards[:3]):
        read(cache, shard)
        os.utime(tmp_path / "copies" / f"{shard.sha256}.tfrecord", (1000 + age, 1000 + age))
    read(cache, shards[0])  # used now: the second is the oldest
    assert read(cache, shards[3]) == 3
    assert copies(tmp_path / "copies") == {shards[n].sha256 for n in (0, 2, 3)}
    assert [read(cache, shard) for shard in shards] == [0, 1, 2, 3]
    assert len(copies(tmp_path / "copies")) == 3


def test_what_is_larger_than_the_room_is_read_where_it_is(tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "mount", 1)
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=tmp_path / "copies", max_bytes=10)
    assert read(cache, shards[0]) == 0
    assert copies(tmp_path / "copies") == set()


def test_a_copy_that_a_kill_left_half_made_is_made_anew(tmp_path: Path) -> None:
    shard = make_shards(tmp_path / "mount", 1)[0]
    folder = tmp_path / "copies"
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=folder, max_bytes=shard.size)
    (folder / f"{shard.sha256}.tfrecord.tmp").write_bytes(bytes(shard.size))
    assert read(cache, shard) == 0
    assert copies(folder) == {shard.sha256}
    assert not list(folder.glob("*.tmp"))


def test_a_damaged_copy_is_dropped_for_the_source(tmp_path: Path) -> None:
    shard = make_shards(tmp_path / "mount", 1)[0]
    folder = tmp_path / "copies"
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=folder, max_bytes=10**6)
    (folder / f"{shard.sha256}.tfrecord").write_bytes(bytes(shard.size))
    assert read(cache, shard) == 0
    assert read(cache, shard) == 0


def test_a_source_that_is_not_what_was_packed_is_not_copied(tmp_path: Path) -> None:
    shard = make_shards(tmp_path / "mount", 1)[0]
    folder = tmp_path / "copies"
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=folder, max_bytes=10**6)
    (tmp_path / "mount" / shard.name).write_bytes(bytes(shard.size))
    with pytest.raises(DataChanged, match="SHA-256"):
        read(cache, shard)
    (tmp_path / "mount" / shard.name).unlink()
    with pytest.raises(DataChanged, match="missing"):
        read(cache, shard)
    assert {path.suffix for path in folder.iterdir()} <= {".lock"}


def test_ranks_that_download_at_once_make_one_copy_each(tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "mount", 12)
    folder = tmp_path / "copies"
    failures: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            cache = ShardCache(tmp_path / "mount", "tfrecord", folder=folder, max_bytes=10**6)
            cache.download(shards, part=number, parts=3)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert copies(folder) == {shard.sha256 for shard in shards}


def test_a_download_needs_a_folder_and_room(tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "mount", 2)
    with pytest.raises(LaunchInvalid, match="--cache-dir"):
        ShardCache(tmp_path / "mount", "tfrecord").download(shards)
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=tmp_path / "copies", max_bytes=1500)
    with pytest.raises(LaunchInvalid, match="--cache-gib"):
        cache.download(shards)


@contextlib.contextmanager
def small_disk(limit: int) -> Generator[None]:
    """This process cannot write larger files meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_the_copies_not_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = make_shards(tmp_path / "mount", 3)
    folder = tmp_path / "copies"
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=folder, max_bytes=10**6)
    assert read(cache, shards[0]) == 0
    with small_disk(shards[0].size // 2):
        assert [read(cache, shard) for shard in shards[1:]] == [1, 2]
    assert copies(folder) == {shards[0].sha256}
    assert not list(folder.glob("*.tmp"))
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert f"no more shards are copied to {folder}: File too large" in warnings[0]
    (tmp_path / "mount" / shards[0].name).unlink()
    assert read(cache, shards[0]) == 0  # what is there still serves


def test_a_download_to_a_full_disk_is_refused(tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "mount", 2)
    cache = ShardCache(tmp_path / "mount", "tfrecord", folder=tmp_path / "copies", max_bytes=10**6)
    with small_disk(100), pytest.raises(LaunchInvalid, match="has no room"):
        cache.download(shards)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchInvalid, match="--cache-dir"):
        ShardCache(tmp_path, "tfrecord", folder=tmp_path / "file" / "below", max_bytes=1)
