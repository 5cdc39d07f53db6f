"""Tables as azureml-examples declare them."""

from __future__ import annotations

from pathlib import Path

import pytest

from localazure.machinelearning.mltables import MLTable, MLTableError


def write(folder: Path, text: str, **files: str) -> MLTable:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".csv").write_text(content)
    (folder / "MLTable").write_text(text)
    return MLTable.read(folder)


def test_a_delimited_file(tmp_path: Path) -> None:
    text = "paths: [{file: ./iris.csv}]\ntransformations: [{read_delimited: {delimiter: ';'}}]"
    table = write(tmp_path, text, iris="a;b\n1;x\n2;y\n")
    assert table.is_tabular
    assert table.to_frame().to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


def test_files_that_are_no_table(tmp_path: Path) -> None:
    table = write(tmp_path, "paths: [{file: ./images}]", images__1="x", images__0="y", other="z")
    assert not table.is_tabular
    assert [each.name for each in table.files] == ["0.csv", "1.csv"]


def test_columns_from_the_names_of_folders(tmp_path: Path) -> None:
    text = """
paths: [{pattern: ./**/*.csv}]
transformations:
- read_delimited: {encoding: ascii, header: all_files_same_headers, include_path_column: true}
- extract_columns_from_partition_format:
    partition_format: "{Store}/{Brand}/{file_name}.{extension}"
- drop_columns: [Path, file_name, extension]
"""
    table = write(
        tmp_path, text, **{"1000__tropicana__d": "q\n1\n2\n", "1001__dominicks__d": "q\n3\n"}
    )
    assert table.to_frame().to_dict("list") == {
        "q": [1, 2, 3],
        "Store": ["1000", "1000", "1001"],
        "Brand": ["tropicana", "tropicana", "dominicks"],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("paths: [{file: https://x/y}]", "'https://x/y' is not covered"),
        ("paths: [{file: ../secret}]", "'../secret' is not covered"),
        ("transformations: [take: 5]", "'take' is not covered; read_delimited, "),
        ("just text", "is not a mapping"),
    ],
)
def test_what_is_not_covered_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(MLTableError, match=message):
        write(tmp_path, text)


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    text = (
        "paths: [{file: ./t.csv}]\ntransformations: [{read_delimited: {}}, {keep_columns: [a, z]}]"
    )
    table = write(tmp_path, text, t="a,b\n1,2\n")
    with pytest.raises(MLTableError, match=r"t\.csv has no column z"):
        table.to_frame()
