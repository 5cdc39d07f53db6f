from __future__ import annotations

import numpy as np
import pytest
import torch

from trainers.reports.memory import is_out_of_memory


def test_the_cpus_allocator_is_heard() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**44)
    assert is_out_of_memory(caught.value)


def test_so_is_numpys() -> None:
    with pytest.raises(MemoryError) as caught:
        np.ones(2**44)
    assert is_out_of_memory(caught.value)


def test_so_is_a_gpus() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."))


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), ValueError("memory")])
def test_other_errors_are_not(error: Exception) -> None:
    assert not is_out_of_memory(error)
