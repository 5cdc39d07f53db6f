"""Each option in two real processes with Gloo, against the same run without it."""

from __future__ import annotations

import functools
import hashlib
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.local.trainers.conftest import assert_golden

# Sums in another order, printed with 6 decimals; 8 steps amplify it little.
SAME_BUT_FOR_ROUNDING = 2e-5
# bfloat16 has 8 bits of precision: losses near 2 differ in the third digit.
BF16_TOLERANCE = 0.05

FSDP = ("--parallel", "fsdp")
MEMORY = ("--channels-last", "--checkpoint-activations")  # its policy follows
ADAMW = (
    *("--optimizer", "adamw", "--label-smoothing", "0.1", "--schedule", "constant"),
    *("--augment", "tests.local.trainers.own_example:mixup"),
)
EVERY_4 = ("--checkpoint-every", "4")
EVALUATED = ("--evaluate-every", "1")


@pytest.fixture(scope="session")
def train(train: Any) -> Any:
    """Train a narrow network, unless the options name another."""
    return functools.partial(train, "--model", "tests.local.trainers.own_example:narrow_resnet")


@pytest.fixture(scope="session")
def plain(train: Any) -> Any:
    """Two ranks, DDP, no further option, checkpoints after steps 4 and 8."""
    return train(*EVERY_4)


@pytest.fixture(scope="session")
def sharded(train: Any) -> Any:
    """The same with FSDP, and evaluated after each epoch."""
    return train(*FSDP, *EVERY_4, *EVALUATED)


@pytest.fixture(scope="session")
def adamw(train: Any) -> Any:
    """Two ranks, AdamW, smoothed labels, checkpoints after steps 4 and 8."""
    return train(*ADAMW, *EVERY_4)


def test_losses_are_the_golden_ones(train: Any) -> None:
    done = train("--model", "resnet8", ranks=1)
    assert_golden(done.losses, "golden_losses_synthetic.json")


@pytest.mark.parametrize(
    "options",
    [
        ("--accumulate", "3", *MEMORY, "full"),
        (*FSDP, "--keep-gathered", "--accumulate", "2", *MEMORY, "selective"),
        ("--compile", "eager"),
        (*FSDP, "--compile", "eager"),
    ],
    ids=" ".join,
)
def test_what_changes_speed_or_memory_does_not_change_the_loss(
    options: tuple[str, ...], train: Any, plain: Any
) -> None:
    done = train(*options)
    assert done.losses == pytest.approx(plain.losses, rel=SAME_BUT_FOR_ROUNDING)
    assert done.result("metrics")["accuracy"] == plain.result("metrics")["accuracy"]


def test_averages_after_each_step_are_those_of_the_gradients(train: Any, plain: Any) -> None:
    done = train("--average-every", "1")
    assert done.losses == pytest.approx(plain.losses, rel=SAME_BUT_FOR_ROUNDING)


def test_ranks_that_meet_every_third_step_resume_to_the_bit(
    train: Any, plain: Any, tmp_path: Path
) -> None:
    options = ("--average-every", "3", *EVERY_4)
    done = train(*options)
    assert done.losses_after(1) != plain.losses_after(1)
    again = train(*options, folder=done.copied_without_checkpoint(8, tmp_path))
    assert "resumed from step 4\n" in again.seen
    assert again.losses == done.losses_after(4)
    assert again.weights == done.weights


def test_fsdp_leaves_the_same_plain_weights_as_ddp(sharded: Any, plain: Any) -> None:
    """Sums of two do not depend on their order: not a bit differs, nor by more evaluations."""
    assert sharded.losses == plain.losses
    assert sharded.weights == plain.weights
    assert sharded.result("metrics")["accuracy"] == plain.result("metrics")["accuracy"]


@pytest.mark.parametrize("options", [(), FSDP], ids=["ddp", "fsdp"])
def test_bf16_loses_nearly_as_fp32(options: tuple[str, ...], train: Any, plain: Any) -> None:
    done = train(*options, "--precision", "bf16")
    assert done.losses != plain.losses
    assert done.losses == pytest.approx(plain.losses, rel=BF16_TOLERANCE)


def test_averages_the_best_weights_and_clipping_go_on_in_shards(
    train: Any, plain: Any, tmp_path: Path
) -> None:
    options = ("--average-weights", "0.5", "--keep-best", "--clip-gradients", "0.1", *EVALUATED)
    copies = train(*options, *EVERY_4)
    assert copies.losses_after(2) != pytest.approx(plain.losses_after(2), rel=1e-3)
    folder = copies.copied_without_checkpoint(8, tmp_path)
    done = train(*options, *EVERY_4, *FSDP, "--keep-gathered", folder=folder)
    assert done.losses == pytest.approx(copies.losses_after(4), rel=SAME_BUT_FOR_ROUNDING)
    for name in ("accuracy", "kept_step"):
        assert done.result("metrics")[name] == copies.result("metrics")[name]


@pytest.mark.parametrize("resumed_with", [(), FSDP], ids=["ddp", "fsdp"])
def test_adamw_goes_on_where_it_stopped(
    resumed_with: tuple[str, ...], train: Any, tmp_path: Path, adamw: Any
) -> None:
    folder = adamw.copied_without_checkpoint(8, tmp_path)
    done = train(*ADAMW, *EVERY_4, *resumed_with, folder=folder)
    assert done.losses == adamw.losses_after(4)
    assert done.weights == adamw.weights


@pytest.mark.parametrize(
    ("ranks", "resumed_with"),
    [(3, ()), (1, FSDP)],
    ids=["3 ddp", "1"],
)
def test_a_checkpoint_of_two_shards_loads_on_any_ranks(
    ranks: int,
    resumed_with: tuple[str, ...],
    train: Any,
    plain: Any,
    sharded: Any,
    tmp_path: Path,
) -> None:
    folder = sharded.copied_without_checkpoint(8, tmp_path)
    done = train(*resumed_with, ranks=ranks, folder=folder)
    assert "resumed from step 4\n" in done.seen
    assert ("scaling_efficiency" in done.result("report")["speed"]) == (ranks > 2)
    assert done.losses == pytest.approx(plain.losses_after(4), rel=SAME_BUT_FOR_ROUNDING)


@pytest.mark.parametrize(
    "options",
    [
        ("--model", "tests.local.trainers.own_example:BatchNormalised"),
        (*FSDP, "--model", "tests.local.trainers.own_example:BatchNormalised"),
        ("--model", "tests.local.trainers.own_example:Perceptron"),
    ],
    ids=["batch norm", "batch norm, fsdp", "dropout"],
)
def test_a_resumed_run_ends_in_the_same_bits_buffers_and_all(
    options: tuple[str, ...], train: Any
) -> None:
    undisturbed = train(*options, *EVERY_4, *EVALUATED)
    weights, curve = undisturbed.weights, undisturbed.result("report")["curve"]
    assert [point["step"] for point in curve["held_out"]] == [4, 8]
    # One byte of rank 1's part of the newest checkpoint: it is skipped for the one before.
    newest = next(undisturbed.checkpoints.glob("step-00000008-*/__1_0.distcp"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    shutil.rmtree(undisturbed.results)

    again = train(*options, *EVERY_4, *EVALUATED, folder=undisturbed.folder)
    assert re.search(r"^warning: checkpoint step-00000008-\w+ skipped", again.seen, re.MULTILINE)
    assert "resumed from step 4\n" in again.seen
    assert min(again.losses) == 5
    assert again.weights == weights
    assert again.result("report")["curve"] == curve


def test_a_warm_start_begins_with_the_weights_of_a_model(train: Any, plain: Any) -> None:
    """The learning rate changes no weight, so that the result has the initial weights."""
    model = str(plain.results / "model")
    done = train("--initial-model", model, "--epochs", "1", "--learning-rate", "1e-30")
    assert done.weights == plain.weights
    assert plain.result("metrics")["warm_start"] == 0
    assert done.result("metrics")["warm_start"] == 1
    lineage = done.result("report")["initial_model"]
    assert lineage == done.result("model/model")["initial_model"]
    assert lineage["dataset_version"] == plain.result("report")["dataset_version"]
    assert lineage["weights_sha256"] == hashlib.sha256(plain.weights).hexdigest()


def test_an_initial_model_of_other_classes_ends_all_ranks(train: Any, plain: Any) -> None:
    model = str(plain.results / "model")
    failed = train("--initial-model", model, "--synthetic-classes", "5", code=1)
    error = failed.result("error")
    assert error["type"] == "InitialModelMismatch"
    assert "only in the data: 0004" in error["message"]


def test_the_report_tells_speed_waits_and_the_curve(plain: Any) -> None:
    report = plain.result("report")
    speed = report["speed"]
    assert speed["devices"] == 2
    assert speed["images_per_second"] == pytest.approx(2 * speed["images_per_second_per_device"])
    assert 0 < speed["data_wait_seconds"] < speed["train_seconds"]
    assert 0 <= speed["exchange_fraction"] < 1
    assert speed["peak_device_memory_bytes"] > 0
    assert speed["limited_by"]
    assert "scaling_efficiency" not in speed
    assert (plain.results / "curve.svg").read_text().count("<polyline") == 2
    curve = report["curve"]["train"]
    assert [point["step"] for point in curve] == list(range(1, 9))
    assert {p["step"]: round(p["loss"], 6) for p in curve} == plain.losses
    cosine = [0.05 * 0.5 * (1 + math.cos(math.pi * step / 7)) for step in range(7)]
    assert [p["learning_rate"] for p in curve] == pytest.approx([0.05, *cosine])
    held_out = report["curve"]["held_out"]
    metrics = plain.result("metrics")
    assert [(p["step"], p["accuracy"]) for p in held_out] == [(8, metrics["accuracy"])]
