"""The driver over mini-batches, with real worker processes."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Any

import pytest

from localazure.machinelearning.minibatch_contents import MiniBatchError
from localazure.machinelearning.minibatches import Driver, Settings, Summary, shell_command

SCRIPT = """
import os, pathlib, sys, time
def init():
    global name
    name = sys.argv[1]
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
    (tmp_path / "script.py").write_text(SCRIPT)
    for number in range(5):
        below = tmp_path / "data" / str(number % 2)
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}.txt").write_text(f"text {number}")
    return tmp_path


def settings(folder: Path, argument: str, **changes: float) -> Settings:
    values = {"mini_batch_size": 2, "workers": 2, "max_retries": 1, **changes}
    return Settings(
        entry_script=folder / "script.py",
        arguments=(argument,),
        inputs=(folder / "data",),
        append_row_to=folder / "rows" / "predictions.csv",
        **values,  # pyright: ignore[reportArgumentType] - whole numbers where they must be
    )


@pytest.mark.parametrize(
    ("script", "timeout"), [("raises once", 60), ("dies once", 60), ("hangs once", 1)]
)
def test_every_file_has_its_row_also_after_a_retry(
    folder: Path, script: str, timeout: float
) -> None:
    summary = Driver(settings(folder, script, timeout_seconds=timeout)).run()
    assert summary == Summary(items=5, mini_batches=3)
    rows = (folder / "rows" / "predictions.csv").read_text().splitlines()
    assert sorted(rows) == [str([f"text {number}", script]) for number in range(5)]


def test_failures_within_the_thresholds_are_counted(folder: Path) -> None:
    summary = Driver(settings(folder, "loses one", error_threshold=3)).run()
    assert summary == Summary(items=5, failed_items=3, mini_batches=3, failed_mini_batches=3)
    assert len((folder / "rows" / "predictions.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"error_threshold": 1}, "2 failed, more than error_threshold = 1"),
        ({"mini_batch_error_threshold": 0}, "1 failed, more than mini_batch_error_threshold = 0"),
    ],
)
def test_more_failures_than_allowed_fail_the_run(
    folder: Path, changes: dict[str, int], message: str
) -> None:
    with pytest.raises(MiniBatchError, match=message):
        Driver(settings(folder, "always raises", workers=1, max_retries=0, **changes)).run()


def test_the_command_passes_everything_on_and_reports_a_failing_init(folder: Path) -> None:
    def run(argument: str) -> subprocess.CompletedProcess[str]:
        command = shell_command(
            settings(folder, "", workers=1),
            inputs=[str(folder / "data")],
            arguments=f'"{argument}"',
            rows=str(folder / "rows.csv"),
        )
        return subprocess.run(
            ["/bin/bash", "-c", command], check=False, capture_output=True, text=True, timeout=30
        )

    done = run("--name with spaces")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("3 mini-batches, 0 of them failed; 5 items, 0 of them failed\n")
    assert "['text 4', '--name with spaces']" in (folder / "rows.csv").read_text()
    failed = run("init fails")
    assert failed.returncode == 1
    assert failed.stderr.endswith("init() failed: LookupError: no model\n")


TABLE_SCRIPT = """
def run(table, mini_batch_context):
    keys = mini_batch_context.partition_key_value
    if keys == {"store": 3, "brand": "y"}: raise ValueError("bad group")
    return [[mini_batch_context.minibatch_index, keys, table["quantity"].sum().item()]]
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(TABLE_SCRIPT)
    data = tmp_path / "data"
    data.mkdir()
    rows = ["store,brand,quantity", "1,x,10", "2,x,20", "1,x,30", "1,y,40", "3,y,50"]
    (data / "sales.csv").write_text("\n".join(rows))
    (data / "MLTable").write_text(
        "paths: [{file: ./sales.csv}]\ntransformations: [{read_delimited: {delimiter: ','}}]"
    )
    return tmp_path


def test_a_table_is_cut_by_the_values_of_its_keys(table: Path) -> None:
    changes: Any = {"partition_keys": ("store", "brand"), "max_retries": 0}
    summary = Driver(settings(table, "", **changes)).run()
    assert summary == Summary(items=5, failed_items=1, mini_batches=4, failed_mini_batches=1)
    rows = (table / "rows" / "predictions.csv").read_text().splitlines()
    assert sorted(map(ast.literal_eval, rows)) == [
        [0, {"store": 1, "brand": "x"}, 40],
        [1, {"store": 1, "brand": "y"}, 40],
        [2, {"store": 2, "brand": "x"}, 20],
    ]


@pytest.mark.parametrize(("size", "sums"), [(0, [150]), (30, [30, 70, 50])])
def test_a_table_is_cut_by_its_size_in_bytes(table: Path, size: int, sums: list[int]) -> None:
    Driver(settings(table, "", mini_batch_size=size)).run()
    rows = (table / "rows" / "predictions.csv").read_text().splitlines()
    found = sorted(map(ast.literal_eval, rows))
    assert found == [[index, {}, total] for index, total in enumerate(sums)]
