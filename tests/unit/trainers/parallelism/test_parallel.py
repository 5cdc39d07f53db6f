from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainers.parallelism.parallel import compile_parts

MORE_THAN_TORCHS_LIMIT = 10


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("widths", "graphs"),
    [([4] * 6, 1), ([*range(1, MORE_THAN_TORCHS_LIMIT + 1), 1], MORE_THAN_TORCHS_LIMIT)],
    ids=["alike", "different"],
)
def test_each_shape_of_a_block_is_compiled_once_in_training_and_once_in_evaluation(
    widths: list[int], graphs: int
) -> None:
    compiled: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    torch.compiler.reset()
    parts = [nn.Linear(width, width) for width in widths]
    compile_parts(parts, backend)
    for part in parts:
        part(torch.randn(2, part.in_features))
    assert len(compiled) == graphs
    with torch.no_grad():
        for part in parts:
            part.eval()(torch.randn(2, part.in_features))
    assert len(compiled) == 2 * graphs
