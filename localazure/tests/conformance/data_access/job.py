"""A job that reads and writes `azureml://` URIs; `__main__` has written the folder `table`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import mltable  # pyright: ignore[reportMissingImports] - installed in the job's environment only
from azureml.fsspec import (  # pyright: ignore[reportMissingImports]
    AzureMachineLearningFileSystem,
)

WORKSPACE = (
    f"azureml://subscriptions/{os.environ['AZUREML_ARM_SUBSCRIPTION']}"
    f"/resourcegroups/{os.environ['AZUREML_ARM_RESOURCEGROUP']}"
    f"/workspaces/{os.environ['AZUREML_ARM_WORKSPACE_NAME']}"
)
STORE = f"{WORKSPACE}/datastores/workspaceblobstore/paths/"
ASSET = f"{WORKSPACE}/data/table/versions/1"


def rows(table: Any) -> list[list[int]]:
    """The cells of an MLTable."""
    return table.to_pandas_dataframe().to_numpy().tolist()


def read_files() -> None:
    """List, match and read files of a datastore, and check whether they exist."""
    files = AzureMachineLearningFileSystem(STORE)
    assert files.ls("table") == ["table/MLTable", "table/a.csv", "table/below/"]
    assert files.glob("table/**/*.csv") == ["table/a.csv", "table/below/b c%20d.csv"]
    with files.open("table/below/b c%20d.csv") as file:
        assert file.read() == b"x,y\n3,4\n"
    assert files.exists("table/a.csv")
    assert not files.exists("table/none.csv")


def write_files() -> None:
    """Upload a file, replace it, and read it each time."""
    files = AzureMachineLearningFileSystem(STORE)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "written.txt"
        for content in (b"first", b"second" * 1_000_000):
            written.write_bytes(content)
            files.upload(str(written), "written/", overwrite="MERGE_WITH_OVERWRITE")
            fresh = AzureMachineLearningFileSystem(STORE)
            with fresh.open("written/written.txt") as file:
                assert file.read() == content


def read_tables() -> None:
    """Read delimited files, a folder with an MLTable file, and a data asset of type MLTable."""
    assert rows(mltable.from_delimited_files([{"folder": f"{STORE}table/below"}])) == [[3, 4]]
    assert rows(mltable.load(f"{STORE}table")) == [[1, 2]]
    assert rows(mltable.load(ASSET)) == [[1, 2]]
    assert AzureMachineLearningFileSystem(ASSET).ls()[:2] == ["MLTable", "a.csv"]


if __name__ == "__main__":
    read_files()
    write_files()
    read_tables()
