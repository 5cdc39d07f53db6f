"""How inputs are cut into mini-batches, and how rows are written."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from localazure.machinelearning.serving.minibatches import (
    MiniBatchError,
    format_rows,
    list_mini_batches,
)


def test_files_at_any_depth_are_cut_by_the_order_of_their_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(4):
        below = data / str(number % 2)
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}.txt").touch()
    batches = list_mini_batches(data, 3)
    names = [[Path(file).name for file in batch] for batch in batches]
    assert names == [["0.txt", "2.txt", "1.txt"], ["3.txt"]]
    assert list_mini_batches(data / "0" / "0.txt", 3) == [[str(data / "0" / "0.txt")]]
    (tmp_path / "empty").mkdir()
    with pytest.raises(MiniBatchError, match=r"no file in .*empty"):
        list_mini_batches(tmp_path / "empty", 2)


def test_rows_are_written_as_azure_writes_them() -> None:
    assert format_rows(pd.DataFrame({"file": ["a", "b c"], "class": [1, 2]})) == 'a 1\n"b c" 2\n'
    assert format_rows(["a: 1", 2, ["x,y", 3]]) == "a: 1\n2\n['x,y', 3]\n"
