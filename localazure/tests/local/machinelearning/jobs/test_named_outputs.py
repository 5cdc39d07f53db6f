"""What a job leaves becomes data and models: by the names of its outputs, and by its run."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.ai.ml import Input, Output
from azure.ai.ml.entities import Model
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from harness.local_workspace import Local
from harness.waiting import until

# Writes the same files as MLflow's client, whose import would take seconds.
LOG = """
run=$(ls -d ${MLFLOW_TRACKING_URI#file://}/*/$MLFLOW_RUN_ID)
mkdir $run/artifacts/plots && echo 1 > $run/artifacts/plots/loss
mkdir -p $run/outputs/m-1 $run/../models/m-1/artifacts
printf 'model_id: m-1\\nname: forest\\n' > $run/../models/m-1/meta.yaml
echo 2 > $run/../models/m-1/artifacts/MLmodel
echo 3 > outputs/kept
echo 4 > ${{outputs.rows}}/rows.csv
echo 5 > ${{outputs.model}}/weights
"""
OUTPUTS = {
    "rows": Output(type="uri_folder", name="rows"),
    "model": Output(type="custom_model", name="named", version="7"),
}


@pytest.fixture(scope="module", autouse=True)
def job(local: Local) -> None:
    local.submit("leaves", LOG, outputs=OUTPUTS)
    local.wait_for("leaves", "Completed")


def test_named_outputs_of_a_completed_job_are_registered(local: Local) -> None:
    assert local.ml.data.get("rows", label="latest").version == "1"
    data = local.ml.data.get("rows", version="1")
    assert (data.type, data.path.endswith("/azureml/leaves/rows/")) == ("uri_folder", True)
    model = local.ml.models.get("named", version="7")
    assert (model.type, model.job_name) == ("custom_model", "leaves")
    subjects = {"models/named:7"}
    until(lambda: subjects <= {event["subject"] for event in local.topic.events})
    rows = {"rows": Input(path="azureml:rows:1")}
    local.submit(
        "fails", "cat ${{inputs.rows}}/absent", inputs=rows, outputs={"o": OUTPUTS["rows"]}
    )
    local.wait_for("fails", "Failed")
    assert [each.version for each in local.ml.data.list(name="rows")] == ["1"]
    with pytest.raises(ResourceExistsError, match="named:7"):
        local.submit("again", "true", outputs=OUTPUTS)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("runs:/leaves/forest/", "MLmodel"),
        ("runs:/leaves/plots", "loss"),
        ("azureml://jobs/leaves/outputs/artifacts/paths/outputs/", "kept"),
        ("azureml://jobs/leaves/outputs/model/paths/", "weights"),
    ],
)
def test_what_a_run_left_is_a_model(local: Local, tmp_path: Path, path: str, file: str) -> None:
    given = Model(name=f"of-{file}", version="1", type="custom_model", path=path)
    local.ml.models.create_or_update(given)
    again = Model(name=f"of-{file}", version="1", type="custom_model", path=path)
    model = local.ml.models.create_or_update(again)
    assert "/datastores/workspace" in str(model.path)
    local.ml.models.download(f"of-{file}", "1", download_path=str(tmp_path))
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == [file]


def test_a_run_that_does_not_exist_is_no_model(local: Local) -> None:
    for path in ("runs:/absent/model", "azureml://jobs/leaves/outputs/absent/paths/m"):
        with pytest.raises(ResourceNotFoundError, match="outputs"):
            local.ml.models.create_or_update(Model(name="nothing", path=path))
    with pytest.raises(HttpResponseError, match="not allowed"):
        local.ml.models.create_or_update(Model(name="nothing", path="runs:/leaves/../x"))
