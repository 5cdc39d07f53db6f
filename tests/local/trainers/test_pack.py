"""Packing by processes and ranks, some of them killed; and training on what they packed."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from localazure.processes.ports import free_ports
from tests.local.trainers.conftest import REPOSITORY, make_digits, variables
from tests.local.trainers.forked_ranks import DEADLINE_SECONDS, run_command
from tests.unit.trainers.small_datasets import freeze
from trainers import pack as program

# Two lanes of blocks: large enough that the window is not all there is.
ON_DIGITS = (
    *("--model", "tests.local.trainers.own_example:narrow_resnet"),
    *("--batch-size", "64", "--shuffle-window", "512", "--checkpoint-every", "12"),
)
STEPS = 16
RESUMED_FROM = 12  # of 8 steps an epoch: in the middle of the second
# One rank or two: see FLOAT32_TOLERANCE in test_train.py.
TOLERANCE = 1e-5


def command(source: Path, target: Path, options: tuple[str, ...]) -> str:
    return shlex.join(["python", "-m", "trainers.pack", str(source), str(target), *options])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def many_digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("many-digits")
    images = make_digits(folder / "images", "--limit", "700")
    return images, freeze(images, folder / "manifest")


@pytest.fixture(scope="module")
def options(many_digits: tuple[Path, Path]) -> tuple[str, ...]:
    """To pack them in four shards."""
    return ("--manifest", str(many_digits[1]), "--shard-images", "200")


@pytest.fixture(scope="module")
def shards(
    many_digits: tuple[Path, Path],
    options: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    target = tmp_path_factory.mktemp("shards") / "parquet"
    assert program.main([str(many_digits[0]), str(target), *options]) == 0
    assert len(list(target.glob("shard-*.parquet"))) == 4
    return target


def test_ranks_pack_what_one_process_packs(
    many_digits: tuple[Path, Path],
    options: tuple[str, ...],
    shards: Path,
    forked: Any,
    tmp_path: Path,
) -> None:
    packing = command(many_digits[0], tmp_path, options)
    forked(run_command, *((packing, variables(rank, 2, "1")) for rank in range(2))).ended(0, 0)
    assert content(tmp_path) == content(shards)


def test_the_shards_of_a_dead_rank_are_packed_by_the_others(
    many_digits: tuple[Path, Path],
    options: tuple[str, ...],
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables(1, 2, "1").items():
        monkeypatch.setenv(name, value)
    assert program.main([str(many_digits[0]), str(tmp_path), *options]) == 0
    assert content(tmp_path) == content(shards)


def test_a_killed_packers_rerun_ends_alike(
    many_digits: tuple[Path, Path],
    options: tuple[str, ...],
    shards: Path,
    forked: Any,
    tmp_path: Path,
) -> None:
    images, _ = many_digits
    packing = forked(run_command, (command(images, tmp_path, options), {}))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not list(tmp_path.glob("*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    packing.processes[0].kill()
    packing.wait()
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("shard-*.json")}

    assert program.main([str(images), str(tmp_path), *options]) == 0
    packed = {name: value for name, value in content(tmp_path).items() if ".tmp" not in name}
    assert packed == content(shards)
    assert all((tmp_path / name).stat().st_mtime_ns == when for name, when in before.items())


def test_bad_data_is_told_with_code_and_file(tmp_path: Path) -> None:
    (tmp_path / "images" / "1").mkdir(parents=True)
    (tmp_path / "images" / "1" / "a.png").write_bytes(b"no image")
    manifest = freeze(tmp_path / "images", tmp_path / "manifest")
    options = ("--manifest", str(manifest), "--output-dir", str(tmp_path / "results"))
    assert program.main([str(tmp_path / "images"), str(tmp_path / "shards"), *options]) == 65
    error = json.loads((tmp_path / "results" / "error.json").read_bytes())
    assert error["type"] == "DataRejected"
    assert error["files"][0]["path"] == "1/a.png"
    assert not (tmp_path / "shards" / "index.json").exists()


def test_shards_are_not_packed_into_what_they_are_packed_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([str(tmp_path), str(tmp_path / "shards"), "--manifest", "none"]) == 1
    assert "LaunchInvalid" in capsys.readouterr().err


def test_a_folder_and_its_shards_train_alike_to_the_bit(
    many_digits: tuple[Path, Path], shards: Path, train: Any, tmp_path: Path
) -> None:
    images, manifest = many_digits
    target = str(tmp_path / "x")
    options = ("--manifest", str(manifest), "--format", "tar")
    assert program.main([str(images), target, *options]) == 0
    of_version = ("--manifest", str(manifest), *ON_DIGITS, "--epochs", "1")
    folder = train("--dataset", "folder", "--data", str(images), *of_version)
    parquet = train("--dataset", "shards", "--data", str(shards), *of_version)
    tar = train("--dataset", "shards", "--data", target, *of_version)
    assert len(folder.losses) == STEPS // 2
    assert folder.losses == parquet.losses == tar.losses
    assert folder.weights == parquet.weights == tar.weights
    assert folder.result("metrics")["loss"] == parquet.result("metrics")["loss"]
    assert parquet.result("report")["speed"]["data_wait_seconds"] >= 0


@pytest.mark.parametrize(("before", "after", "resumed_on"), [(2, 1, "shards"), (1, 2, "folder")])
def test_a_resume_in_mid_epoch_on_other_ranks_trains_alike(
    before: int,
    after: int,
    resumed_on: str,
    many_digits: tuple[Path, Path],
    shards: Path,
    train: Any,
) -> None:
    images, manifest = many_digits
    data = {"shards": shards, "folder": images}
    options = ("--manifest", str(manifest), *ON_DIGITS)
    whole = train("--dataset", "shards", "--data", str(shards), *options, ranks=before)
    assert max(whole.losses) == STEPS
    resumed = train(
        *("--dataset", resumed_on, "--data", str(data[resumed_on])),
        *options,
        ranks=after,
        folder=whole.without_checkpoint(STEPS),
    )
    assert f"resumed from step {RESUMED_FROM}\n" in resumed.seen
    assert resumed.losses == pytest.approx(whole.losses_after(RESUMED_FROM), rel=TOLERANCE)


def test_the_jobs_command_packs_then_trains(
    digits: Path, manifest: Path, forked: Any, tmp_path: Path
) -> None:
    job = yaml.safe_load((REPOSITORY / "pipelines" / "digits" / "job-shards.yml").read_text())
    places = {
        "inputs.data": digits,
        "inputs.manifest": manifest,
        "inputs.champion": "none",
        "inputs.initial_model": "none",
        "outputs.results": tmp_path / "results",
        "outputs.checkpoints": tmp_path / "checkpoints",
    }
    command = re.sub(r"\$\{\{(.+?)\}\}", lambda found: str(places[found[1]]), job["command"])
    command = command.replace("--epochs 20", "--epochs 2")
    port = str(free_ports(1)[0])
    ranks = [(command, variables(rank, 2, port)) for rank in range(2)]
    forked(run_command, *ranks).ended(0, 0)
    metrics = json.loads((tmp_path / "results" / "metrics.json").read_bytes())
    assert metrics["train_samples"] + metrics["held_out_samples"] == 300
