"""Runs a job that uses azureml-fsspec and mltable with `azureml://` URIs: `make conformance-data`.

The packages and their dependencies take about 400 MB, so the tests do not require them: they are
installed from PyPI into a separate environment. The job is `job.py`.

In localazure/tests: `python -m conformance.data_access`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from harness.local_workspace import Local, azure_ml_settings, local_workspace
from harness.waiting import until
from harness.wheel import Installed

PACKAGES: Final = ("azureml-fsspec==1.4.0", "mltable==1.7.0", "azure-ai-ml", "pandas")
# Dependencies whose pinned versions in this repository do not suit these packages.
WITHOUT_PINS: Final = ("azure-identity", "cloudpickle", "fsspec", "pyarrow", "python-dateutil")
JOB: Final = Path(__file__).with_name("job.py")
FILES: Final = {
    "MLTable": b"paths: [{pattern: ./*.csv}]\n"
    b"transformations: [{read_delimited: {delimiter: ',', header: all_files_same_headers}}]\n",
    "a.csv": b"x,y\n1,2\n",
    "below/b c%20d.csv": b"x,y\n3,4\n",
}


def run(local: Local, python: Path) -> str:
    """Run the job in that interpreter, and print its log; returns its status."""
    from azure.ai.ml.entities import Data  # noqa: PLC0415 - asks for the cloud's metadata

    store: Any = local.ml.datastores.get("workspaceblobstore")
    container = local.blobs.get_container_client(store.container_name)
    container.create_container()
    for name, content in FILES.items():
        container.upload_blob(f"table/{name}", content)
    path = "azureml://datastores/workspaceblobstore/paths/table/"
    local.ml.data.create_or_update(Data(name="table", version="1", type="mltable", path=path))
    local.submit("data-access", f"{python} -W ignore {JOB}")
    ended = {"Completed", "Failed"}
    status = until(
        lambda: found if (found := local.status("data-access")) in ended else None,
        what="the end of the job",
        seconds=300,
    )
    print(local.log("data-access"), f"the job is {status}", sep="\n")
    return status


def main() -> int:
    """Return 1 if the job fails."""
    with tempfile.TemporaryDirectory() as scratch:
        installed = Installed(Path(scratch) / "venv")
        installed.install(*PACKAGES, without_pins=WITHOUT_PINS)
        state = Path(scratch) / "state"
        state.mkdir()
        with local_workspace(state) as local, azure_ml_settings(local.environment):
            return int(run(local, installed.python) != "Completed")


if __name__ == "__main__":
    sys.exit(main())
