"""The driver over mini-batches, with real worker processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from localazure.machinelearning.serving.minibatches import (
    IGNORE_ALL,
    Driver,
    MiniBatchError,
    Settings,
    Summary,
    shell_command,
)

SCRIPT = """
import os, pathlib, time
name = pathlib.Path(__file__).stem
def init():
    if name == "init fails":
        raise LookupError("no model")
def run(mini_batch):
    first = pathlib.Path(mini_batch[0])
    mark = pathlib.Path(__file__).with_name("second " + first.name)
    is_second = mark.exists()
    mark.touch()
    match name:
        case "raises once" if not is_second: raise ValueError("bad batch")
        case "dies once" if not is_second: os._exit(3)
        case "hangs once" if not is_second: time.sleep(60)
        case "always raises": raise ValueError("bad batch")
        case "loses one": return mini_batch[1:]
    return [[pathlib.Path(file).read_text(), name] for file in mini_batch]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        below = tmp_path / "data" / str(number % 2)
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}.txt").write_text(f"text {number}")
    return tmp_path


def settings(folder: Path, name: str, **changes: float) -> Settings:
    (folder / f"{name}.py").write_text(SCRIPT)
    values = {"mini_batch_size": 2, "workers": 2, "max_retries": 1, "timeout_seconds": 60}
    return Settings(
        entry_script=folder / f"{name}.py",
        data=folder / "data",
        append_row_to=folder / "rows" / "predictions.csv",
        **{"error_threshold": IGNORE_ALL, **values, **changes},  # pyright: ignore[reportArgumentType] - whole numbers where they must be
    )


@pytest.mark.parametrize(
    ("script", "timeout"), [("raises once", 60), ("dies once", 60), ("hangs once", 1)]
)
def test_every_file_has_its_row_also_after_a_retry(
    folder: Path, script: str, timeout: float
) -> None:
    summary = Driver(settings(folder, script, timeout_seconds=timeout)).run()
    assert summary == Summary(files=5, mini_batches=3)
    rows = (folder / "rows" / "predictions.csv").read_text().splitlines()
    assert sorted(rows) == [str([f"text {number}", script]) for number in range(5)]


def test_failures_within_the_thresholds_are_counted(folder: Path) -> None:
    summary = Driver(settings(folder, "loses one", error_threshold=3)).run()
    assert summary == Summary(files=5, failed_files=3, mini_batches=3, failed_mini_batches=3)
    assert len((folder / "rows" / "predictions.csv").read_text().splitlines()) == 2


def test_more_failures_than_allowed_fail_the_run(folder: Path) -> None:
    given = settings(folder, "always raises", workers=1, max_retries=0, error_threshold=1)
    with pytest.raises(MiniBatchError, match="2 failed, more than error_threshold = 1"):
        Driver(given).run()


def test_the_command_passes_everything_on_and_reports_a_failing_init(folder: Path) -> None:
    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = shell_command(settings(folder, name, workers=1))
        return subprocess.run(
            ["/bin/bash", "-c", command], check=False, capture_output=True, text=True, timeout=30
        )

    done = run("name with spaces")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("3 mini-batches, 0 of them failed; 5 files, 0 of them failed\n")
    rows = (folder / "rows" / "predictions.csv").read_text()
    assert "['text 4', 'name with spaces']" in rows
    failed = run("init fails")
    assert failed.returncode == 1
    assert failed.stderr.endswith("init() failed: LookupError: no model\n")
