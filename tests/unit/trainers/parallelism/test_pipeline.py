from __future__ import annotations

import copy

import pytest
import torch

from trainers.errors import LaunchInvalid
from trainers.parallelism.pipeline import Stage, keep_stage
from trainers.plugins import build_network


@pytest.mark.parametrize(
    ("architecture", "stages"),
    [
        *(("resnet8", 1), ("resnet8", 5)),
        ("tests.local.trainers.own_transformer:Transformer", 2),
        ("tests.local.trainers.own_transformer:Transformer", 4),
    ],
)
def test_stages_in_turn_answer_as_the_whole_and_keep_its_names(
    architecture: str, stages: int
) -> None:
    torch.manual_seed(0)
    whole = build_network(architecture, channels=1, classes=3, size=32).eval()
    images = torch.randn(2, 1, 32, 32)
    features, names = images, set[str]()
    for stage in range(stages):
        part = copy.deepcopy(whole)
        parts = keep_stage(part, stage, stages)
        names |= part.state_dict().keys()
        features = Stage(*parts)(features)
    assert names == whole.state_dict().keys()
    assert torch.equal(features, whole(images))


@pytest.mark.parametrize(
    ("architecture", "stages", "said"),
    [
        ("tests.local.trainers.own_example:Perceptron", 2, "no pipeline_parts"),
        ("timm/resnet10t", 2, "no pipeline_parts"),
        ("resnet8", 9, "too few for 9 stages"),
    ],
)
def test_what_cannot_be_cut_is_told(architecture: str, stages: int, said: str) -> None:
    network = build_network(architecture, channels=1, classes=3, size=32)
    with pytest.raises(LaunchInvalid, match=said):
        keep_stage(network, 0, stages)
