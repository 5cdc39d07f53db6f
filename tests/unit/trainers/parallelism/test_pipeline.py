from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.errors import LaunchInvalid
from trainers.parallelism.pipeline import Stage, cut, keep_stage
from trainers.plugins import build_network


@given(st.lists(st.integers()), st.integers(1, 9))
def test_runs_of_neighbours_make_up_the_whole(items: list[int], count: int) -> None:
    runs = cut(items, count)
    assert [item for run in runs for item in run] == items
    lengths = [len(run) for run in runs]
    assert len(lengths) == count
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@pytest.mark.parametrize(
    ("architecture", "stages"),
    [
        *(("resnet8", 1), ("resnet8", 5), ("vit-digits", 2), ("vit-digits", 5)),
        *(("resnet18", 5), ("resnet50", 2)),  # large ones: drawing their weights takes long
    ],
)
def test_stages_in_turn_answer_as_the_whole_and_keep_its_names(
    architecture: str, stages: int
) -> None:
    torch.manual_seed(0)
    whole = build_network(architecture, channels=1, classes=3).eval()
    images = torch.randn(2, 1, 32, 32)
    features, names = images, set[str]()
    for stage in range(stages):
        part = copy.deepcopy(whole)
        parts = keep_stage(part, stage, stages)
        names |= part.state_dict().keys()
        features = Stage(parts, precision="fp32", device=torch.device("cpu"))(features)
    assert names == whole.state_dict().keys()
    assert torch.equal(features, whole(images))


@pytest.mark.parametrize(
    ("architecture", "stages", "said"),
    [
        ("tests.local.trainers.own_example:Perceptron", 2, "no pipeline_parts"),
        ("resnet18-batchnorm", 2, "batch normalisation"),
        ("resnet8", 9, "too few for 9 stages"),
    ],
)
def test_what_cannot_be_cut_is_told(architecture: str, stages: int, said: str) -> None:
    network = build_network(architecture, channels=1, classes=3)
    with pytest.raises(LaunchInvalid, match=said):
        keep_stage(network, 0, stages)
