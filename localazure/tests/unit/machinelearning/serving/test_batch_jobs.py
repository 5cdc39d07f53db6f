from __future__ import annotations

from typing import Any

import pytest

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.serving.batch_jobs import (
    BatchSettings,
    component_spec,
    job_properties,
    requested_file_name,
)
from localazure.machinelearning.serving.instances import Source

DEPLOYMENT: dict[str, Any] = {
    "compute": "/subscriptions/…/computes/cluster",
    "model": {"assetId": "azureml:weight:1"},
    "codeConfiguration": {"codeId": "azureml:code:1", "scoringScript": "score.py"},
    "environmentId": "azureml:scoring:1",
    "resources": {"instanceCount": 2},
    "maxConcurrencyPerInstance": 3,
    "retrySettings": {"timeout": "PT1M30S"},
    "outputAction": "SummaryOnly",
}
SOURCE = Source(
    code=BlobPath("code", "c"), scoring_script="score.py", model=BlobPath("models", "a/model")
)
FILE = "azureml://datastores/workspaceblobstore/paths/scored/all.csv"


def test_a_request_overrides_the_settings_of_its_deployment() -> None:
    settings = BatchSettings.from_deployment(DEPLOYMENT)
    assert settings.timeout_seconds == 90
    assert (settings.max_retries, settings.mini_batch_size) == (3, 10), "the defaults"
    asked = settings.override({"miniBatchSize": 1, "compute": {"instanceCount": 1}})
    assert (asked.mini_batch_size, asked.instance_count) == (1, 1)
    assert asked.timeout_seconds == 90


@pytest.mark.parametrize(
    "wrong",
    [
        {"miniBatchSize": 0},
        {"errorThreshold": -2},
        {"outputAction": "Append"},
        {"outputFileName": "../rows.csv"},
        {"retrySettings": {"timeout": "30"}},
        {"resources": {"instanceCount": "2"}},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArmError) as refused:
        BatchSettings.from_deployment(DEPLOYMENT).override(wrong)
    assert refused.value.status == 400


def test_the_driver_gets_the_settings() -> None:
    spec = component_spec(SOURCE, DEPLOYMENT, BatchSettings.from_deployment(DEPLOYMENT))
    command = spec["command"]
    assert "--workers=6 " in command
    assert "--append-row-to" not in command, "summary_only"
    assert command.endswith(' "${{inputs.data}}"')
    assert 'ln -sfn "${{inputs.model}}" "$AZUREML_MODEL_DIR"/model\n' in command
    assert spec["resources"] == {"instance_count": 2}


def job(request: dict[str, Any]) -> dict[str, Any]:
    return job_properties(
        endpoint="weighing",
        deployment="plain",
        properties=DEPLOYMENT,
        request=request,
        component="azureml:scoring:1",
    )


def test_a_request_may_name_the_output_file() -> None:
    request = {
        "inputData": {"UriFile": {"jobInputType": "UriFile", "uri": "https://example.org/a"}},
        "outputData": {"output_name": {"jobOutputType": "UriFile", "uri": FILE}},
    }
    assert requested_file_name(request) == "all.csv"
    properties = job(request)
    folder = "azureml://datastores/workspaceblobstore/paths/scored/"
    assert properties["outputs"] == {"score": {"jobOutputType": "uri_folder", "uri": folder}}
    assert properties["inputs"]["UriFile"]["jobInputType"] == "uri_file"


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"a": {"jobInputType": "Literal", "value": "1"}},
        {"a": {"jobInputType": "MLTable", "uri": "azureml:table:1"}},
        {each: {"jobInputType": "UriFile", "uri": "https://example.org/a"} for each in "ab"},
    ],
)
def test_inputs_that_no_model_deployment_scores_are_refused(inputs: dict[str, Any]) -> None:
    with pytest.raises(ArmError, match="a model deployment scores"):
        job({"inputData": inputs})
