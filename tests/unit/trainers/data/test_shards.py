from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.unit.trainers.folder_datasets import load
from tests.unit.trainers.small_datasets import good_files, image_file, lay_down
from trainers.data.dataset import DatasetRequest
from trainers.data.image_file import ImageFormat
from trainers.data.images import RandomCrop, random_views
from trainers.data.order import BLOCK, Order
from trainers.data.shard_index import ShardIndex
from trainers.data.shards import ShardSource, load_shards
from trainers.errors import DataChanged, DataRejected, LaunchInvalid
from trainers.pack import pack_shard, plan
from trainers.parallelism.mesh import RankCoordinates

GREY_4 = ImageFormat(size=4, mode="grey")


def pack(
    folder: Path,
    files: dict[str, bytes],
    *,
    storage: str = "parquet",
    shard_images: int = 150,
) -> DatasetRequest:
    """Write the files to `folder`, and pack them into `shards`."""
    manifest = lay_down(folder / "files", files)
    tasks = plan(manifest, storage=storage, shard_images=shard_images, shard_bytes=10**9)
    target = folder / "shards"
    target.mkdir()
    records = [pack_shard(folder / "files", target, task) for task in tasks]
    index = ShardIndex(dataset_version=manifest.version, storage=storage, shards=tuple(records))
    index.write(target)
    return DatasetRequest(image_format=GREY_4, data=target, max_bad_fraction=1)


@pytest.mark.parametrize("storage", ["parquet", "tar"])
@pytest.mark.parametrize(
    ("shard_images", "larger"),
    [(1000, {}), (137, {f"1/{n}-large.png": image_file(n, size=n) for n in range(5, 30)})],
)
def test_shards_hold_what_the_folder_holds(
    storage: str, shard_images: int, larger: dict[str, bytes], tmp_path: Path
) -> None:
    files = good_files(420) | {"0/bad.png": b"no image", "_SUCCESS": b""} | larger
    manifest = lay_down(tmp_path / "files", files)
    folder = load(manifest, tmp_path / "files", GREY_4, max_bad_fraction=1)
    request = pack(tmp_path, files, storage=storage, shard_images=shard_images)
    shards = load_shards(dataclasses.replace(request, decode_threads=3))
    assert (shards.version, shards.classes) == (folder.version, folder.classes)
    assert shards.quarantined == folder.quarantined
    assert shards.fingerprint == folder.fingerprint
    for ours, theirs in ((shards.train, folder.train), (shards.held_out, folder.held_out)):
        assert len(ours) == len(theirs)
        chosen = torch.randperm(len(theirs), generator=torch.Generator().manual_seed(1))
        for numbers in (chosen, chosen[:7], torch.tensor([len(theirs) - 1, 0, 0])):
            assert torch.equal(ours.take(numbers).inputs, theirs.take(numbers).inputs)
            assert torch.equal(ours.take(numbers).labels, theirs.take(numbers).labels)
        draws = torch.rand(len(chosen), RandomCrop.DRAWS)
        crop = RandomCrop(size=4, least_area=0.1)
        cropped = [random_views(source, chosen, crop, draws).inputs for source in (ours, theirs)]
        assert torch.equal(*cropped)
    other = ImageFormat(size=3, mode="rgb")
    everything = torch.arange(len(folder.held_out))
    assert torch.equal(
        shards.held_out_as(other).take(everything).inputs,
        folder.held_out_as(other).take(everything).inputs,
    )


def test_an_epoch_reads_each_block_once_but_for_those_cut_by_a_lane(tmp_path: Path) -> None:
    request = pack(tmp_path, good_files(1400, size=1))
    window = 2 * BLOCK
    for ranks in (1, 2):
        read = samples = 0
        for rank in range(ranks):
            of_rank = dataclasses.replace(
                request, shuffle_window=window, batch_size=32, ranks=ranks
            )
            source = load_shards(of_rank).train
            assert isinstance(source, ShardSource)
            order = Order(samples=len(source), batch_size=32, seed=0, shuffle_window=window)
            for step in range(order.steps_per_epoch):
                source.take(order.batch(step)[rank::ranks])
            read += source.blocks_read
            samples = len(source)
        assert read <= -(-samples // BLOCK) + 2


def test_ranks_that_score_read_each_block_once_but_for_those_at_a_border(tmp_path: Path) -> None:
    request = pack(tmp_path, good_files(1400, size=1))
    read = blocks = 0
    for rank in range(2):
        source = load_shards(request).held_out
        assert isinstance(source, ShardSource)
        coordinates = RankCoordinates(data_rank=rank, data_ranks=2)
        for numbers in coordinates.passes(len(source), at_once=16):
            source.take(numbers)
        read += source.blocks_read
        blocks = -(-len(source) // BLOCK)
    assert 2 <= blocks <= read <= blocks + 1


def test_shards_of_another_version_are_refused(tmp_path: Path) -> None:
    request = pack(tmp_path, good_files(30))
    with pytest.raises(DataChanged, match="version v1, not v2"):
        load_shards(dataclasses.replace(request, dataset_version="v2"))


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (None, "FileNotFoundError"),
        (b"{", "not an index"),
        ({"format": 9}, "format is another"),
        ({"storage": "zip"}, "format is another"),
        ({"shards": [{"train": -1}]}, "not an index"),
        ({"shards": 3}, "not an index"),
        ({"more": 3}, "not an index"),
    ],
)
def test_without_an_index_of_ours_there_are_no_shards(
    index: bytes | dict[str, object] | None, reason: str, tmp_path: Path
) -> None:
    request = pack(tmp_path, good_files(30))
    path = tmp_path / "shards" / "index.json"
    match index:
        case None:
            path.unlink()
        case bytes():
            path.write_bytes(index)
        case dict():
            path.write_text(json.dumps(json.loads(path.read_bytes()) | index))
    with pytest.raises(DataRejected, match=reason):
        load_shards(request)
    with pytest.raises(LaunchInvalid, match="--data"):
        load_shards(DatasetRequest(image_format=GREY_4))


def test_the_threshold_is_the_trainings_own(tmp_path: Path) -> None:
    files = good_files(30) | {"0/bad.png": b"no image"}
    request = pack(tmp_path, files)
    with pytest.raises(DataRejected, match="1 of 31 files") as caught:
        load_shards(dataclasses.replace(request, max_bad_fraction=0.01))
    assert caught.value.problems[0].path == "0/bad.png"


def test_shards_that_are_missing_cut_or_damaged_are_named(tmp_path: Path) -> None:
    request = pack(tmp_path, good_files(300))
    dataset = load_shards(request)
    first, second = (shard.name for shard in ShardIndex.read(tmp_path / "shards").shards)
    content = bytearray((tmp_path / "shards" / first).read_bytes())
    content[len(content) // 3] ^= 1
    (tmp_path / "shards" / first).write_bytes(content)
    with pytest.raises(DataChanged) as caught:
        dataset.train.take(torch.arange(len(dataset.train)))
    assert caught.value.problems[0].path == first

    (tmp_path / "shards" / first).unlink()
    (tmp_path / "shards" / second).write_bytes(b"cut")
    with pytest.raises(DataChanged, match="2 of 2 shards") as caught:
        load_shards(request)
    assert [problem.path for problem in caught.value.problems] == [first, second]


def test_damage_that_only_decoding_shows_names_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like an image that another version of Pillow accepted."""
    whole = image_file(5, size=64)
    damaged = whole[:200] + b"x" * 50 + whole[250:]
    monkeypatch.setattr("trainers.pack.check", str)
    dataset = load_shards(pack(tmp_path, good_files(30) | {"1/damaged.png": damaged}))

    def take_all() -> None:
        for source in (dataset.train, dataset.held_out):
            source.take(torch.arange(len(source)))

    with pytest.raises(DataRejected, match="cannot be decoded") as caught:
        take_all()
    assert [problem.path for problem in caught.value.problems] == ["1/damaged.png"]
