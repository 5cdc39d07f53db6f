from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from trainers.checkpointing.checkpoints import (
    KEPT,
    Checkpoint,
    CheckpointFolder,
    RunIdentity,
    sha256_of,
)

IDENTITY = RunIdentity(
    dataset_version="v1",
    data_fingerprint="d",
    settings_fingerprint="s",
    network_fingerprint="n",
    seed=0,
)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def folder(tmp_path: Path, said: list[str]) -> CheckpointFolder:
    return CheckpointFolder(tmp_path, IDENTITY, said.append)


def newest(folder: CheckpointFolder) -> int | None:
    """The step of the newest that is whole, as two ranks find it."""
    for checkpoint in folder.committed():
        damages = [folder.damage(checkpoint, part=part, parts=2) for part in (0, 1)]
        if damages == [None, None]:
            return checkpoint.step
        for damage in filter(None, damages):
            folder.skip(folder.content(checkpoint.step).name, damage)
    return None


def save(folder: CheckpointFolder, *steps: int) -> None:
    for step in steps:
        files: dict[str, str] = {}
        for name in ("a", "b", "c"):
            path = folder.content(step) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"{name} of {step}".encode() * 20)
            files[name] = sha256_of(path)
        folder.commit(Checkpoint(step=step, files=files))


def test_the_newest_is_found_and_two_are_kept(
    folder: CheckpointFolder, tmp_path: Path, said: list[str]
) -> None:
    save(folder, 20, 40, 60)
    assert newest(folder) == 60
    assert len(list(tmp_path.iterdir())) == 2 * KEPT
    assert said == ["checkpoint step 20", "checkpoint step 40", "checkpoint step 60"]


def test_every_flipped_or_cut_byte_is_noticed(
    folder: CheckpointFolder, tmp_path: Path, said: list[str]
) -> None:
    save(folder, 20, 40)
    for payload in tmp_path.glob("step-00000040-*/*"):
        content = payload.read_bytes()
        for place in range(0, len(content), 17):
            damaged = bytearray(content)
            damaged[place] ^= 1
            payload.write_bytes(damaged)
            assert newest(folder) == 20
        payload.write_bytes(content[:-1])
        assert newest(folder) == 20
        assert f"corrupt: {payload.name} differs from its record" in said[-1]
        payload.unlink()
        assert newest(folder) == 20
        payload.write_bytes(content)
        assert newest(folder) == 40


@pytest.mark.parametrize(
    "change",
    [
        *(b"", b"{", b"[]", b"{}", b'{"format": 3}', b'{"format": 4}', b"\xff"),
        *({"step": 1e400}, {"step": -40}, {"files": {}}, {"files": 7}),
    ],
)
def test_a_damaged_record_is_passed_over_with_a_warning(
    change: bytes | dict[str, object], folder: CheckpointFolder, tmp_path: Path, said: list[str]
) -> None:
    save(folder, 20, 40)
    record = next(tmp_path.glob("step-00000040-*.json"))
    if isinstance(change, dict):
        change = json.dumps(json.loads(record.read_bytes()) | change).encode()
    record.write_bytes(change)
    assert newest(folder) == 20
    assert said[-1].startswith("warning: checkpoint step-00000040-")


def test_a_record_under_another_name_is_corrupt(
    folder: CheckpointFolder, tmp_path: Path, said: list[str]
) -> None:
    save(folder, 20)
    record = next(tmp_path.glob("step-00000020-*.json"))
    record.rename(record.with_name(record.name.replace("20", "40")))
    assert newest(folder) is None
    assert "its record has step 20" in said[-1]


def test_a_death_before_the_record_is_there_leaves_the_one_before(
    folder: CheckpointFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, 20)

    class Died(Exception):
        pass

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(Died):
            save(folder, 40)
    assert newest(folder) == 20

    save(folder, 60)  # sweeps what was left lying
    assert newest(folder) == 60
    left = {path.name.split("-")[1] for path in tmp_path.iterdir()}
    assert left == {"00000020", "00000060"}


@pytest.mark.parametrize(
    "change",
    [
        {"dataset_version": "v2"},
        {"data_fingerprint": "e"},
        {"settings_fingerprint": "t"},
        {"network_fingerprint": "o"},
        {"seed": 1},
    ],
)
def test_another_runs_checkpoints_are_neither_used_nor_removed(
    change: dict[str, str | int], folder: CheckpointFolder, tmp_path: Path, said: list[str]
) -> None:
    save(folder, 300, 320)
    other = CheckpointFolder(tmp_path, dataclasses.replace(IDENTITY, **change), said.append)
    assert newest(other) is None
    assert f"it is of another run: {next(iter(change))} differ" in said[-1]
    save(other, 20, 40, 60)
    assert newest(other) == 60
    assert newest(folder) == 320


def test_damaged_later_ones_do_not_push_out_what_is_saved_after_them(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    """The run starts from step 0, and saves at step 30, when it receives SIGTERM."""
    save(folder, 60, 80)
    for payload in [*folder.content(60).iterdir(), *folder.content(80).iterdir()]:
        payload.write_bytes(b"damaged")
    assert newest(folder) is None
    save(folder, 30)
    assert newest(folder) == 30
    save(folder, 40)
    assert newest(folder) == 40
    left = {path.name.split("-")[1] for path in tmp_path.iterdir()}
    assert left == {"00000030", "00000040"}
