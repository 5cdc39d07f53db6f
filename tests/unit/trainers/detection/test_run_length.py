from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trainers.detection import run_length

MASKS = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.bool_, shape)
)


def runs_of(mask: np.ndarray) -> tuple[int, ...]:
    height, width = mask.shape
    return run_length.runs(mask, left=0, top=0, width=width, height=height)


# As the reference implementation writes them: cocoapi, common/maskApi.c.
@pytest.mark.parametrize(("runs", "text"), [((1, 2, 2, 1), "122O"), ((42, 1), "Z11")])
def test_compressed_runs_are_cocos(runs: tuple[int, ...], text: str) -> None:
    assert run_length.compress(runs) == text
    assert run_length.uncompress(text) == runs


@given(st.lists(st.integers(0, 2**40), max_size=30))
def test_compressed_runs_are_read_back(runs: list[int]) -> None:
    assert run_length.uncompress(run_length.compress(runs)) == tuple(runs)


@given(st.text())
def test_any_other_text_is_refused_or_read(text: str) -> None:
    try:
        run_length.uncompress(text)
    except ValueError as error:
        assert "compressed mask" in str(error)  # noqa: PT017  # both outcomes are right


def test_runs_go_down_the_columns_and_begin_with_zeros() -> None:
    assert runs_of(np.array([[1, 0], [1, 1]], bool)) == (0, 2, 1, 1)
    assert runs_of(np.array([[0, 1, 1], [0, 1, 0]], bool)) == (2, 3, 1)
    assert runs_of(np.zeros((2, 3), bool)) == (6,)
    assert runs_of(np.ones((2, 3), bool)) == (0, 6)


@given(MASKS)
def test_a_mask_is_read_back(mask: np.ndarray) -> None:
    height, width = mask.shape
    text = run_length.compress(runs_of(mask))
    again = run_length.mask(run_length.uncompress(text), width=width, height=height)
    assert np.array_equal(again, mask)
    assert 0 not in runs_of(mask)[1:]


@given(MASKS, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_a_part_of_a_mask_has_the_runs_of_the_whole(
    part: np.ndarray, left: int, top: int, right: int, bottom: int
) -> None:
    whole = np.pad(part, ((top, bottom), (left, right)))
    height, width = whole.shape
    runs = run_length.runs(part, left=left, top=top, width=width, height=height)
    assert runs == runs_of(whole)


def test_runs_that_do_not_fill_the_mask_are_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        run_length.mask((3, 4), width=2, height=3)
