"""Layers split over ranks, and a network cut into stages, against the same run on one rank."""

from __future__ import annotations

from typing import Any

import pytest

# Sums in another order (see test_options.py).
SAME_BUT_FOR_ROUNDING = 2e-5
BF16_TOLERANCE = 0.05

# Four steps: most of the time is torch's planning of each split layer's first call.
STEPS = ("--epochs", "1", "--checkpoint-every", "2")
TRANSFORMER = ("--model", "tests.local.trainers.own_transformer:Transformer", *STEPS)
TENSOR = (*TRANSFORMER, "--tensor-parallel", "2")
PIPELINE = (*TRANSFORMER, "--pipeline-parallel", "2")
FSDP = ("--parallel", "fsdp")


@pytest.fixture(scope="session")
def alone(train: Any) -> Any:
    """One rank has all of the transformer."""
    return train(*TRANSFORMER, ranks=1)


@pytest.mark.parametrize(
    "options", [PIPELINE, (*PIPELINE, *FSDP), (*TENSOR, "--pipeline-parallel", "2")], ids=" ".join
)
def test_the_loss_of_four_ranks_is_that_of_one(
    options: tuple[str, ...], train: Any, alone: Any
) -> None:
    done = train(*options, ranks=4)
    assert done.losses == pytest.approx(alone.losses, rel=SAME_BUT_FOR_ROUNDING)
    assert done.result("metrics")["accuracy"] == alone.result("metrics")["accuracy"]


def test_bf16_loses_nearly_as_fp32_in_a_pipeline(train: Any, alone: Any) -> None:
    """Stages cast by themselves; all else casts as in test_options.py."""
    done = train(*PIPELINE, "--precision", "bf16")
    assert done.losses != alone.losses
    assert done.losses == pytest.approx(alone.losses, rel=BF16_TOLERANCE)


@pytest.mark.parametrize(
    "options",
    [(*TENSOR, "--accumulate", "2"), (*PIPELINE, "--pipeline-schedule", "gpipe")],
    ids=["tensor", "pipeline"],
)
def test_a_checkpoint_resumes_to_the_same_bits_and_loads_in_one_plain_process(
    options: tuple[str, ...], train: Any, alone: Any
) -> None:
    options = (*options, "--checkpoint-activations", "full")
    undisturbed = train(*options)
    weights = undisturbed.weights
    assert undisturbed.losses == pytest.approx(alone.losses, rel=SAME_BUT_FOR_ROUNDING)
    assert undisturbed.result("metrics")["accuracy"] == alone.result("metrics")["accuracy"]

    again = train(*options, folder=undisturbed.without_checkpoint(4))
    assert "resumed from step 2\n" in again.seen
    assert again.weights == weights

    plain = train(*TRANSFORMER, folder=undisturbed.without_checkpoint(4), ranks=1)
    assert "resumed from step 2\n" in plain.seen
    assert plain.losses == pytest.approx(alone.losses_after(2), rel=SAME_BUT_FOR_ROUNDING)


def test_four_ranks_of_split_layers_and_shards_save_what_a_pipeline_loads(
    train: Any, alone: Any
) -> None:
    saved = train(*TENSOR, *FSDP, ranks=4)
    assert saved.losses == pytest.approx(alone.losses, rel=SAME_BUT_FOR_ROUNDING)
    done = train(*PIPELINE, folder=saved.without_checkpoint(4))
    assert "resumed from step 2\n" in done.seen
    assert done.losses == pytest.approx(alone.losses_after(2), rel=SAME_BUT_FOR_ROUNDING)


def test_a_convolutional_network_can_be_cut_too(train: Any) -> None:
    done, whole = train("--pipeline-parallel", "2"), train(ranks=1)
    assert done.losses == pytest.approx(whole.losses, rel=SAME_BUT_FOR_ROUNDING)
