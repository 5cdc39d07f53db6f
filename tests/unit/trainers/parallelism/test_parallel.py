from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainers.parallelism.parallel import blocks, compile_parts
from trainers.plugins import build_network

IN_TRAINING = 5  # of nine blocks: those of one shape share a graph


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_blocks_are_compiled_once_for_each_shape_in_training_and_in_evaluation() -> None:
    """torch's own limit of eight graphs would leave most blocks of a ResNet without one."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    network = build_network("resnet20", channels=1, classes=2, size=8)
    compile_parts(blocks(network), backend)
    network(torch.randn(4, 1, 8, 8))
    assert len(graphs) == IN_TRAINING
    with torch.no_grad():
        for images in (4, 5):  # the second size is compiled for all further ones
            network.eval()(torch.randn(images, 1, 8, 8))
    assert len(graphs) == 3 * IN_TRAINING
