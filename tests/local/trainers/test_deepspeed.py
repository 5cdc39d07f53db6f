"""DeepSpeed's engine in two real processes with Gloo, against DDP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed", reason="optional: where a DeepSpeed config is to be given")

# As in test_options.py: sums in another order.
SAME_BUT_FOR_ROUNDING = 2e-5
EVERY_4 = ("--checkpoint-every", "4")


@pytest.fixture(scope="session")
def plain(train: Any) -> Any:
    """DDP, checkpoints after steps 4 and 8."""
    return train(*EVERY_4)


@pytest.mark.timeout(600)  # the first run compiles DeepSpeed's exchange for CPUs
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("passes", [1, 2])
def test_it_loses_as_ddp_and_resumes_on_ddp_and_back(
    stage: int, passes: int, train: Any, plain: Any, tmp_path: Path
) -> None:
    config = tmp_path / "deepspeed.json"
    config.write_text(
        json.dumps({"train_batch_size": "auto", "zero_optimization": {"stage": stage}})
    )
    options = ("--deepspeed", str(config), "--accumulate", str(passes), *EVERY_4)
    done = train(*options)
    assert done.losses == pytest.approx(plain.losses, rel=SAME_BUT_FOR_ROUNDING)
    assert done.result("metrics")["accuracy"] == plain.result("metrics")["accuracy"]

    for resumed_with in (options, EVERY_4, options):
        again = train(*resumed_with, folder=done.without_checkpoint(8))
        assert "resumed from step 4\n" in again.seen
        assert again.losses == pytest.approx(plain.losses_after(4), rel=SAME_BUT_FOR_ROUNDING)
