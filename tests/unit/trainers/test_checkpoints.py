from __future__ import annotations

import dataclasses
import io
import pickle
from pathlib import Path

import pytest
import torch

from trainers.checkpoints import KEPT, CheckpointFolder, RunIdentity, load_state

IDENTITY = RunIdentity(dataset_version="v1", data_fingerprint="d", settings_fingerprint="s", seed=0)


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def folder(tmp_path: Path, said: Said) -> CheckpointFolder:
    return CheckpointFolder(tmp_path, IDENTITY, said)


def newest(folder: CheckpointFolder) -> tuple[int, float] | None:
    found = folder.newest()
    if found is None:
        return None
    state = load_state(found.payload, torch.device("cpu"))
    return found.step, float(state["weight"])


def save(folder: CheckpointFolder, *steps: int) -> None:
    for step in steps:
        folder.save(step, {"weight": torch.tensor(float(step))})


def test_nothing_is_found_in_an_empty_or_missing_folder(tmp_path: Path, said: Said) -> None:
    assert CheckpointFolder(tmp_path / "missing", IDENTITY, said).newest() is None
    assert said.lines == []


def test_the_newest_is_found_and_two_are_kept(
    folder: CheckpointFolder, tmp_path: Path, said: Said
) -> None:
    save(folder, 20, 40, 60)
    assert newest(folder) == (60, 60.0)
    assert len(list(tmp_path.iterdir())) == 2 * KEPT
    assert said.lines == ["checkpoint step 20", "checkpoint step 40", "checkpoint step 60"]


def test_every_flipped_or_cut_byte_is_noticed(
    folder: CheckpointFolder, tmp_path: Path, said: Said
) -> None:
    save(folder, 20, 40)
    payload = next(tmp_path.glob("step-00000040-*.pt"))
    content = payload.read_bytes()
    for place in range(0, len(content), 97):
        damaged = bytearray(content)
        damaged[place] ^= 1
        payload.write_bytes(damaged)
        assert newest(folder) == (20, 20.0)
    payload.write_bytes(content[:-1])
    assert newest(folder) == (20, 20.0)
    assert "corrupt" in said.lines[-1]
    payload.write_bytes(content)
    assert newest(folder) == (40, 40.0)


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b"{}", b'{"format": 2}', b"\xff"])
def test_a_damaged_record_is_passed_over_with_a_warning(
    record: bytes, folder: CheckpointFolder, tmp_path: Path, said: Said
) -> None:
    save(folder, 20, 40)
    next(tmp_path.glob("step-00000040-*.json")).write_bytes(record)
    assert newest(folder) == (20, 20.0)
    assert said.lines[-1].startswith("warning: checkpoint step-00000040-")


def test_a_death_at_any_point_of_saving_leaves_the_one_before(
    folder: CheckpointFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, 20)
    replaced: list[Path] = []
    real_replace = Path.replace

    class Died(Exception):
        pass

    def die_at(last: int) -> None:
        replaced.clear()

        def replace(source: Path, target: Path) -> Path:
            if len(replaced) == last:
                raise Died
            replaced.append(target)
            return real_replace(source, target)

        monkeypatch.setattr(Path, "replace", replace)

    for last in (0, 1):
        die_at(last)
        with pytest.raises(Died):
            save(folder, 40)
        monkeypatch.setattr(Path, "replace", real_replace)
        assert newest(folder) == (20, 20.0)

    save(folder, 60)  # sweeps what was left lying
    assert newest(folder) == (60, 60.0)
    left = {path.name.split("-")[1] for path in tmp_path.iterdir()}
    assert left == {"00000020", "00000060"}


@pytest.mark.parametrize(
    "change",
    [
        {"dataset_version": "v2"},
        {"data_fingerprint": "e"},
        {"settings_fingerprint": "t"},
        {"seed": 1},
    ],
)
def test_another_runs_checkpoints_are_neither_used_nor_removed(
    change: dict[str, str | int], folder: CheckpointFolder, tmp_path: Path, said: Said
) -> None:
    save(folder, 300, 320)
    other = CheckpointFolder(tmp_path, dataclasses.replace(IDENTITY, **change), said)
    assert other.newest() is None
    assert f"it is of another run: {next(iter(change))} differ" in said.lines[-1]
    save(other, 20, 40, 60)
    assert newest(other) == (60, 60.0)
    assert newest(folder) == (320, 320.0)


def test_nothing_is_unpickled_into_code() -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("run",))

    stream = io.BytesIO()
    torch.save({"weight": Evil()}, stream)
    with pytest.raises(pickle.UnpicklingError):
        load_state(stream.getvalue(), torch.device("cpu"))
