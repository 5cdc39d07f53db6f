"""No tensor is left on the wrong device: steps and scoring on torch's meta device.

Its tensors have shapes and types and no values. An operation whose tensors are on two devices fails
there as it does on a GPU, so no GPU is needed to see it.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.trainers.given_settings import settings_of
from trainers.data import synthetic
from trainers.data.images import Samples, to_input
from trainers.loop import Run
from trainers.parallelism.world import World
from trainers.tasks.classification import Classification

META = torch.device("meta")


def a_run(tmp_path: Path, options: str) -> Run:
    settings = settings_of(
        *("--dataset", "synthetic", "--synthetic-images", "64", "--synthetic-classes", "4"),
        *("--batch-size", "8", "--image-size", "32", "--epochs", "1"),
        *options.split(),
        folder=tmp_path,
    )
    world = World(device=META, timeout=dt.timedelta(seconds=1))
    return Run(settings, synthetic.make(settings.dataset_request), world, lambda _: None)


@pytest.mark.parametrize(
    "options",
    [
        "--model resnet8",
        "--model torchvision/resnet18 --channels-last",
        "--model resnet8 --accumulate 2 --checkpoint-activations full",
        "--model timm/test_vit2 --shift-pixels 1 --checkpoint-activations selective",
    ],
)
def test_steps_and_scoring_stay_on_the_device(tmp_path: Path, options: str) -> None:
    run = a_run(tmp_path, options)
    assert {each.device for each in run.parallel.network.state_dict().values()} == {META}
    # The first step and the scoring get as far as the first value: a meta tensor has none.
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        run.fit([])
    momenta = [state["momentum_buffer"] for state in run.optimizer.state.values()]
    assert {momentum.device for momentum in momenta} == {META}
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        run.evaluate()


def test_labels_on_the_wrong_device_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(_: Classification, images: Samples, device: torch.device) -> Any:
        return (to_input(images.inputs, device),), torch.zeros(len(images), dtype=torch.int64)

    monkeypatch.setattr(Classification, "prepare", prepare)
    with pytest.raises(RuntimeError, match="not on the expected device"):
        a_run(tmp_path, "--model resnet8").fit([])
