from __future__ import annotations

from pathlib import Path

import pytest
from azure.ai.ml import Input, Output, command
from azure.ai.ml.entities import AmlCompute, Data

from tests.local.machinelearning.local_workspace import SDK_WARNINGS, Local

pytestmark = SDK_WARNINGS


def test_a_job_reads_its_inputs_and_leaves_its_outputs(local: Local, tmp_path: Path) -> None:
    local.ml.compute.begin_create_or_update(
        AmlCompute(name="cpu", size="Standard_D2", min_instances=0, max_instances=4,
                   idle_time_before_scale_down=60)
    ).result()
    landing = local.blobs.get_container_client("landing")
    landing.upload_blob("digits/7/a.txt", b"seven", overwrite=True)
    data = local.ml.data.create_or_update(
        Data(name="digits", version="1", type="uri_folder",
             path="azureml://datastores/landing/paths/digits/")
    )
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(
        "import sys, pathlib, os\n"
        "print('reading', sys.argv[1])\n"
        "text = pathlib.Path(sys.argv[1], '7', 'a.txt').read_text()\n"
        "pathlib.Path(sys.argv[2], 'model').mkdir(exist_ok=True)\n"
        "pathlib.Path(sys.argv[2], 'model', 'out.txt').write_text(text + sys.argv[3])\n"
        "pathlib.Path('outputs', 'metric.txt').write_text('1')\n"
    )
    job = command(
        name="job-1",
        code=str(code),
        command="python train.py ${{inputs.data}} ${{outputs.results}} ${{inputs.epochs}}",
        inputs={
            "data": Input(type="uri_folder", path=f"azureml:{data.name}:{data.version}"),
            "epochs": 3,
        },
        outputs={"results": Output(type="uri_folder")},
        environment="azureml:torch:1",
        compute="cpu",
        experiment_name="digits",
    )
    created = local.ml.jobs.create_or_update(job)
    assert created.name == "job-1"
    local.wait_for("job-1", "Completed")
    out = local.read_blob("azureml-blobstore", "azureml/job-1/results/model/out.txt")
    assert out == b"seven3"
    assert local.read_blob("azureml", "ExperimentRun/dcid.job-1/outputs/metric.txt") == b"1"
    assert "reading" in local.log("job-1")
