"""Hangs and exhausted memory, in two real ranks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.trainers.conftest import on_synthetic_images
from tests.local.trainers.failing_example import SLOW_SECONDS
from tests.local.trainers.forked_ranks import DEADLINE_SECONDS

REPOSITORY = Path(__file__).parents[3]
FAILING = "tests.local.trainers.failing_example"


def test_a_hang_ends_every_rank_with_the_stack_that_tells_the_cause(train: Any) -> None:
    options = ("--dataset", f"{FAILING}:hanging_stripes", "--step-timeout-seconds", "3")
    ended = train(*options, code=124)
    error = ended.result("error")
    assert error["type"] == "TrainingHung"
    told = r"has made no progress for 3 s since step \d+"
    assert re.match(rf"rank [01] {told} \(--step-timeout-seconds\)", error["message"])
    waiting, hanging = (
        (ended.folder / "results" / f"stacks-rank-{rank}.txt").read_text() for rank in (0, 1)
    )
    assert re.match(f"rank 0 {told}; the stacks", waiting)
    assert re.match(f"rank 1 {told}; the stacks", hanging)
    assert "in wait_for_an_annotation_that_never_comes" in hanging
    assert "in wait_for_an_annotation_that_never_comes" not in waiting
    assert "loop.py" in waiting
    # Each rank's own log has its stacks, too.
    logs = [log.read_text() for log in ended.logs]
    assert waiting.splitlines()[0] in logs[0]
    assert "in wait_for_an_annotation_that_never_comes" in logs[1]


@pytest.mark.parametrize(("dataset", "lost"), [("first_rank_stops", 0), ("second_rank_stops", 1)])
def test_a_rank_that_is_gone_is_named_by_the_others(
    dataset: str, lost: int, fork: Any, tmp_path: Path
) -> None:
    """As with NCCL, the connection to the lost rank stays open and the collective waits."""
    options = ("--dataset", f"{FAILING}:{dataset}", "--step-timeout-seconds", "2")
    ranks = fork(on_synthetic_images(tmp_path, options), ranks=2)
    other = ranks.processes[1 - lost]
    other.join(DEADLINE_SECONDS)
    ranks.processes[lost].kill()
    assert other.exitcode == 1, ranks.seen
    error = json.loads((tmp_path / "results" / "error.json").read_bytes())
    assert error["type"] == "PeerFailed"
    assert f"rank {lost} gave no sign of life" in error["message"]


@pytest.mark.parametrize(
    "options",
    [
        ("--dataset", f"{FAILING}:stripes_on_a_slow_disk", "--checkpoint-every", "8"),
        ("--model", f"{FAILING}:SlowToCompile", "--compile", "eager"),
    ],
    ids=["checkpoint", "compilation"],
)
def test_long_work_that_is_no_step_is_not_taken_for_a_hang(
    options: tuple[str, ...], train: Any
) -> None:
    train(*options, "--step-timeout-seconds", str(SLOW_SECONDS * 0.75))


HOLDS_THE_LOCK = """
import ctypes, pathlib, sys
from trainers.parallelism.watchdog import Watchdog
folder = pathlib.Path(sys.argv[1])
with Watchdog(limit_seconds=0.2, rank=3, output=folder, report=print):
    ctypes.PyDLL(None).sleep(60)  # PyDLL: with the interpreter's lock
"""


def test_native_code_that_keeps_the_interpreters_lock_is_ended_too(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HOLDS_THE_LOCK, tmp_path],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("Timeout (")
    assert 'File "<string>", line 6 in <module>' in ended.stderr


def test_exhausted_memory_says_what_to_lower(train: Any) -> None:
    options = ("--model", f"{FAILING}:Greedy", "--accumulate", "2", "--precision", "bf16")
    failed = train(*options, code=1)
    error = failed.result("error")
    assert error["type"] == "OutOfMemory"
    message = error["message"]
    assert "ran out of memory on cpu" in message
    assert "you tried to allocate 70368744177664 bytes" in message
    assert "--accumulate (now 2: 4 images of 8 x 8 at once on each of 2)" in message
    assert "--checkpoint-activations" in message
    assert "--parallel fsdp" in message
    assert "--batch-size (now 16, over all devices)" in message
    assert "bf16" not in message  # it is on already


def test_a_disk_that_is_full_ends_the_run_and_leaves_no_half_checkpoint(train: Any) -> None:
    options = ("--dataset", f"{FAILING}:stripes_on_a_small_disk", "--checkpoint-every", "4")
    failed = train(*options, code=1)
    error = failed.result("error")
    assert error["type"] == "CheckpointUnwritable"
    assert "checkpoint of step 4 could not be written" in error["message"]
    # torch's writer hides the reason; from Python 3.14 on, the file tells it first.
    assert "is there room left?" in error["message"] or "File too large" in error["message"]
    assert "--checkpoint-dir" in error["message"]
    assert list((failed.folder / "checkpoints").glob("*.json")) == []


@pytest.mark.parametrize("options", [(), ("--parallel", "fsdp")], ids=["ddp", "fsdp"])
def test_weights_that_are_not_finite_are_never_saved(options: tuple[str, ...], train: Any) -> None:
    model = ("--model", f"{FAILING}:Cliff", "--checkpoint-every", "1")
    failed = train(*model, *options, code=1)
    error = failed.result("error")
    assert error["type"] == "TrainingDiverged"
    assert re.match("the norm of all weights is (nan|inf) at step 1: lower", error["message"])
    assert list((failed.folder / "checkpoints").iterdir()) == []


def test_a_kernel_without_a_deterministic_form_is_named(train: Any) -> None:
    failed = train("--model", f"{FAILING}:WithoutDeterministicForm", code=1)
    error = failed.result("error")
    assert error["type"] == "LaunchInvalid"
    assert error["message"].startswith("put_ has no deterministic form on this device")
    assert f"{FAILING}:WithoutDeterministicForm" in error["message"]


def test_the_environment_is_ready_before_anything_is_computed(train: Any) -> None:
    train("--model", f"{FAILING}:NeedsCublasWorkspace", "--deterministic")


@pytest.mark.parametrize(
    ("options", "type_", "said"),
    [
        (("--champion", "/nowhere"), "ModelUnreadable", "/nowhere"),
        (("--checkpoint-dir", "/dev/null/below"), "LaunchInvalid", "/dev/null/below"),
        (("--device", "cuda"), "LaunchInvalid", "sees no GPU"),
    ],
    ids=" ".join,
)
def test_what_would_fail_at_the_end_fails_before_the_start(
    options: tuple[str, ...], type_: str, said: str, refuse: Any
) -> None:
    failed = refuse(*options)
    error = failed.result("error")
    assert error["type"] == type_
    assert said in error["message"]
    assert "to train on" not in failed.seen  # the data is not read yet
