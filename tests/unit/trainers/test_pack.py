from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.trainers.small_datasets import good_files, image_file, lay_down, write_manifest
from trainers import pack
from trainers.data.manifest import Entry, Manifest
from trainers.data.samples import in_order
from trainers.data.shard_index import Shard, ShardIndex
from trainers.errors import DataChanged
from trainers.pack import ShardTask, in_order_of_rank, pack_shard, plan
from trainers.parallelism.launch import Launch


def small_plan(manifest: Manifest, *, storage: str = "parquet") -> list[ShardTask]:
    return plan(manifest, storage=storage, shard_images=16, shard_bytes=10**6)


def pack_all(source: Path, target: Path, tasks: list[ShardTask]) -> list[Shard]:
    target.mkdir(exist_ok=True)
    return [pack_shard(source, target, task) for task in tasks]


@given(
    sizes=st.lists(st.integers(0, 50), max_size=40),
    images=st.integers(1, 10),
    size=st.integers(1, 120),
)
def test_a_plan_has_each_file_once_and_keeps_the_limits(
    sizes: list[int], images: int, size: int
) -> None:
    entries = tuple(Entry(path=f"a/{n}", size=size) for n, size in enumerate(sizes))
    tasks = plan(
        Manifest(version="v1", entries=entries),
        storage="tar",
        shard_images=images,
        shard_bytes=size,
    )
    assert [entry for task in tasks for entry in task.entries] == in_order(entries)
    assert len({task.name for task in tasks}) == len(tasks)
    for task in tasks:
        assert len(task.entries) <= images
        assert len(task.entries) == 1 or sum(entry.size for entry in task.entries) <= size


@pytest.mark.parametrize("storage", ["parquet", "tar"])
def test_the_same_files_make_the_same_bytes(storage: str, tmp_path: Path) -> None:
    manifest = lay_down(tmp_path / "files", good_files(60))
    tasks = small_plan(manifest, storage=storage)
    for name in ("one", "other"):
        pack_all(tmp_path / "files", tmp_path / name, tasks)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) == 8
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_a_finished_shard_is_kept_another_is_made_anew(tmp_path: Path) -> None:
    files = good_files(40)
    manifest = lay_down(tmp_path / "files", files)
    tasks = small_plan(manifest)
    records = pack_all(tmp_path / "files", tmp_path / "shards", tasks)
    lay_down(tmp_path / "files", dict.fromkeys(files, b""))
    assert pack_all(tmp_path / "files", tmp_path / "shards", tasks) == records  # nothing was read

    lay_down(tmp_path / "files", files)
    first = tmp_path / "shards" / tasks[0].name
    content = first.read_bytes()
    first.write_bytes(content[:-1])  # as a crash of the machine may leave it
    assert pack_all(tmp_path / "files", tmp_path / "shards", tasks) == records
    assert first.read_bytes() == content

    changed = lay_down(tmp_path / "files", files | {"0/000.png": image_file(999)})
    again = pack_all(tmp_path / "files", tmp_path / "shards", small_plan(changed))
    assert again != records


def test_a_kill_before_the_record_leaves_no_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = lay_down(tmp_path / "files", good_files(10))
    task = small_plan(manifest)[0]
    target = tmp_path / "shards"
    target.mkdir()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(pack.Shard, "write", die)
        with pytest.raises(KeyboardInterrupt):
            pack_shard(tmp_path / "files", target, task)
    assert Shard.read(target, task.name, task.identity) is None
    record = pack_shard(tmp_path / "files", target, task)
    assert Shard.read(target, task.name, task.identity) == record


def test_changed_files_make_no_shard(tmp_path: Path) -> None:
    manifest = lay_down(tmp_path / "files", good_files(20))
    (tmp_path / "files" / "0" / "000.png").unlink()
    tasks = small_plan(manifest)
    task = next(task for task in tasks if "0/000.png" in {entry.path for entry in task.entries})
    with pytest.raises(DataChanged) as caught:
        pack_shard(tmp_path / "files", tmp_path, task)
    assert [(found.path, found.reason) for found in caught.value.problems] == [
        ("0/000.png", "missing")
    ]
    assert not (tmp_path / task.name).exists()


@given(st.integers(0, 40), st.integers(1, 9))
def test_each_rank_packs_its_part_and_what_is_left(count: int, ranks: int) -> None:
    tasks = [ShardTask(name=str(number), storage="x", entries=()) for number in range(count)]
    orders = [in_order_of_rank(tasks, Launch(rank=rank, size=ranks)) for rank in range(ranks)]
    assert all(
        sorted(task.name for task in order) == sorted(map(str, range(count))) for order in orders
    )
    firsts = [order[: len(tasks[rank::ranks])] for rank, order in enumerate(orders)]
    assert sorted(int(task.name) for first in firsts for task in first) == [*range(count)]


def test_what_other_options_and_crashes_left_is_removed(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path / "m.jsonl", lay_down(tmp_path / "files", good_files(40)))
    target = tmp_path / "shards"
    arguments = [str(tmp_path / "files"), str(target), "--manifest", str(manifest)]
    assert pack.main([*arguments, "--shard-images", "10"]) == 0
    for name, age in (("old", 2 * 3600), ("new", 60)):
        left = target / f"shard-00000.parquet.{name}.tmp"
        left.write_bytes(b"part")
        when = time.time() - age
        os.utime(left, (when, when))
    before = (target / "index.json").stat().st_mtime_ns
    assert pack.main([*arguments, "--shard-images", "30"]) == 0
    assert {path.name for path in target.iterdir()} == {
        *(f"shard-0000{number}.{kind}" for number in (0, 1) for kind in ("parquet", "json")),
        *("index.json", "shard-00000.parquet.new.tmp"),
    }
    assert (target / "index.json").stat().st_mtime_ns != before
    assert sum(shard.train + shard.held_out for shard in ShardIndex.read(target).shards) == 40
