"""How inputs are cut into mini-batches, and how rows are written."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from localazure.machinelearning.minibatch_contents import (
    MiniBatchError,
    list_contents,
    list_mini_batches,
)
from localazure.machinelearning.minibatches import format_rows


def test_files_at_any_depth_are_cut_by_the_order_of_their_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(4):
        below = data / str(number % 2)
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}.txt").touch()
    batches = list_mini_batches([data / "1", data / "0" / "0.txt"], 2)
    names = [[Path(file).name for file in batch] for batch in batches]
    assert names == [["1.txt", "3.txt"], ["0.txt"]]
    (tmp_path / "empty").mkdir()
    with pytest.raises(MiniBatchError, match=r"no file in .*empty"):
        list_mini_batches([tmp_path / "empty"], 2)


def test_rows_are_written_as_azure_writes_them() -> None:
    assert format_rows(pd.DataFrame({"file": ["a", "b c"], "class": [1, 2]})) == 'a 1\n"b c" 2\n'
    assert format_rows(["a: 1", 2, ["x,y", 3]]) == "a: 1\n2\n['x,y', 3]\n"


def test_files_have_no_keys_and_a_bad_table_is_named(tmp_path: Path) -> None:
    sales = tmp_path / "sales.csv"
    sales.write_text("store,quantity\n1,10")
    description = tmp_path / "MLTable"
    transformations = "transformations: [{read_delimited: {delimiter: ','}}]"
    description.write_text(f"paths: [{{file: ./sales.csv}}]\n{transformations}")
    with pytest.raises(MiniBatchError, match="partition_keys need a table"):
        list_contents([sales], 0, ["store"])
    with pytest.raises(MiniBatchError, match="the table cannot be read: KeyError: 'shop'"):
        list_contents([tmp_path], 0, ["shop"])
    description.write_text("transformations: [shuffle]")
    with pytest.raises(MiniBatchError, match="'shuffle' is not covered"):
        list_contents([tmp_path], 0)
    description.write_text("paths: [{file: ./sales.csv}]")
    (content,) = list_contents([tmp_path], 0)
    assert content.data == [str(sales)]
