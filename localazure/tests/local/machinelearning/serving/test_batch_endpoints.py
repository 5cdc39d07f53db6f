"""The real SDK creates batch endpoints and deployments, and scores folders with them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from harness.local_workspace import Local, write_mlflow_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from azure.ai.ml import Input, Output
    from azure.ai.ml.constants._endpoint import EndpointInvokeFields
    from azure.ai.ml.entities import (
        AmlCompute,
        BatchEndpoint,
        Data,
        Model,
        PipelineComponentBatchDeployment,
    )

    # The loader of `az ml batch-deployment create`; the SDK exports only one without types.
    from azure.ai.ml.entities._load_functions import load_model_batch_deployment

SCRIPT = """
import os, pathlib

def init():
    global weight
    weight = int((pathlib.Path(os.environ["AZUREML_MODEL_DIR"]) / "model/weight.txt").read_text())

def run(mini_batch):
    print(f"{len(mini_batch)} files")
    values = {pathlib.Path(each).name: pathlib.Path(each).read_text() for each in mini_batch}
    copies = pathlib.Path(os.environ["AZUREML_BI_OUTPUT_PATH"]) / "copies"
    copies.mkdir(exist_ok=True)
    for name, value in values.items():
        (copies / name).write_text(value)
    scored = [[name, int(value) * weight] for name, value in values.items()]
    return [os.environ["ROW"].format(*each) for each in scored] if "ROW" in os.environ else scored
"""

DEPLOYMENT = """
$schema: https://azuremlschemas.azureedge.net/latest/modelBatchDeployment.schema.json
endpoint_name: weighing
name: plain
type: model
model: azureml:weight:1
code_configuration:
  code: code
  scoring_script: score.py
environment: azureml:scoring:1
compute: azureml:batch-cluster
resources:
  instance_count: 1
settings:
  max_concurrency_per_instance: 2
  mini_batch_size: 2
  output_action: append_row
  output_file_name: rows.txt
  retry_settings:
    max_retries: 1
    timeout: 20
"""

ONE_PROCESS = {"settings.max_concurrency_per_instance": 1}


class Endpoint:
    """The endpoint `weighing`, and the operations of the tests on it."""

    def __init__(self, local: Local, folder: Path) -> None:
        self.local, self.ml, self.folder = local, local.ml, folder
        (folder / "code").mkdir()
        (folder / "code" / "score.py").write_text(SCRIPT)
        (folder / "deployment.yml").write_text(DEPLOYMENT)
        (folder / "model").mkdir()
        (folder / "model" / "weight.txt").write_text("3")
        cluster = AmlCompute(name="batch-cluster", size="Standard_DS3_v2", max_instances=4)
        self.ml.compute.begin_create_or_update(cluster).result()
        model = Model(name="weight", version="1", path=str(folder / "model"), type="custom_model")
        self.ml.models.create_or_update(model)
        self.put(BatchEndpoint(name="weighing"))

    def put(self, endpoint: Any) -> Any:
        return self.ml.batch_endpoints.begin_create_or_update(endpoint).result()

    def deploy(self, name: str, overrides: dict[str, Any], file: str = "deployment.yml") -> Any:
        changes = [{"name": name}, *({key: value} for key, value in overrides.items())]
        found = load_model_batch_deployment(self.folder / file, params_override=changes)
        return self.ml.batch_deployments.begin_create_or_update(found).result()

    def set_default(self, name: str) -> None:
        endpoint = self.ml.batch_endpoints.get("weighing")
        endpoint.defaults.deployment_name = name  # as Microsoft's notebooks do
        self.put(endpoint)

    def data(self, *values: object) -> Input:
        folder = self.folder / "data" / "-".join(map(str, values))
        folder.mkdir(parents=True, exist_ok=True)
        for number, value in enumerate(values):
            (folder / f"{number}.txt").write_text(str(value))
        return Input(type="uri_folder", path=str(folder))

    def score(self, given: Input, **settings: Any) -> str:
        # azure-ai-ml 1.35 also sends the deployment of an earlier call.
        EndpointInvokeFields.DEFAULT_HEADER.pop(EndpointInvokeFields.MODEL_DEPLOYMENT, None)
        job = self.ml.batch_endpoints.invoke(
            **{"endpoint_name": "weighing", "inputs": {"heaps": given}, **settings}
        )
        return job.name

    def step(self, job: str) -> Any:
        (step,) = self.ml.jobs.list(parent_job_name=job)
        return step

    def output(self, job: str) -> dict[str, str]:
        """Path in the job's output → content, downloaded with `jobs.download`."""
        target = self.folder / "downloaded" / job
        self.ml.jobs.download(job, download_path=target, output_name="score")
        root = target / "named-outputs" / "score"
        return {
            str(each.relative_to(root)): each.read_text()
            for each in root.rglob("*")
            if each.is_file()
        }


@pytest.fixture(scope="module")
def endpoint(local: Local, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    endpoint = Endpoint(local, tmp_path_factory.mktemp("batch"))
    deployed = endpoint.deploy("plain", {})
    assert (deployed.provisioning_state, deployed.mini_batch_size) == ("Succeeded", 2)
    endpoint.set_default("plain")
    yield endpoint
    endpoint.ml.batch_endpoints.begin_delete("weighing").result()
    with pytest.raises(ResourceNotFoundError):
        endpoint.ml.batch_endpoints.get("weighing")


def test_the_default_deployment_scores_a_folder(endpoint: Endpoint) -> None:
    given = endpoint.data(1, 2, 3, 4, 5)
    job = endpoint.score(given, experiment_name="heaps")
    endpoint.local.wait_for(job, "Completed")
    found = endpoint.output(job)
    expected = {f"{[f'{number}.txt', 3 * (number + 1)]}" for number in range(5)}
    assert set(found.pop("rows.txt").splitlines()) == expected
    assert found == {f"copies/{number}.txt": str(number + 1) for number in range(5)}
    log = Counter(endpoint.local.log(endpoint.step(job).name).splitlines())
    assert (log["2 files"], log["1 files"]) == (2, 1), "what the script printed"
    assert log["3 mini-batches, 0 of them failed; 5 files, 0 of them failed"] == 1
    assert job in {each.name for each in endpoint.ml.jobs.list()}
    assert endpoint.ml.jobs.get(job).experiment_name == "heaps"
    for listed in (
        endpoint.ml.batch_endpoints.list_jobs("weighing"),
        endpoint.ml.batch_deployments.list_jobs("weighing", name="plain"),
    ):
        assert (job, "Completed") in {(each.name, each.status) for each in listed}


def test_a_request_overrides_its_deployment(endpoint: Endpoint) -> None:
    settings = {"settings.environment_variables": {"ROW": "{} {}"}, **ONE_PROCESS}
    endpoint.deploy("framed", settings)
    endpoint.ml.data.create_or_update(
        Data(name="heaps", version="1", path=endpoint.data(7, 8).path, type="uri_folder")
    )
    folder = "azureml://datastores/workspaceblobstore/paths/scored/"
    job = endpoint.score(
        Input(type="uri_folder", path="azureml:heaps:1"),
        deployment_name="framed",
        job_name="scoring-of-heaps",
        outputs={"score": Output(type="uri_folder", path=folder)},
        params_override=[{"mini_batch_size": 1}, {"output_file_name": "all.csv"}],
    )
    assert job == "scoring-of-heaps"
    endpoint.local.wait_for(job, "Completed")
    rows = endpoint.local.read_blob("azureml-blobstore", "scored/all.csv").decode()
    assert sorted(rows.splitlines()) == ["0.txt 21", "1.txt 24"]
    with pytest.raises(ResourceExistsError):
        endpoint.score(endpoint.data(1), job_name="scoring-of-heaps")


def test_an_mlflow_model_needs_no_scoring_script(endpoint: Endpoint, tmp_path: Path) -> None:
    folder, table = tmp_path / "doubling", tmp_path / "table"
    write_mlflow_model(folder)
    endpoint.ml.models.create_or_update(
        Model(name="doubling", version="1", path=str(folder), type="mlflow_model")
    )
    begin, _, rest = DEPLOYMENT.partition("code_configuration")
    (endpoint.folder / "bare.yml").write_text(begin + rest.partition("score.py\n")[2])
    # One process: each imports MLflow.
    endpoint.deploy("doubling", {"model": "azureml:doubling:1", **ONE_PROCESS}, "bare.yml")
    table.mkdir()
    (table / "a.csv").write_text("x\n1\n2\n")
    job = endpoint.score(
        Input(type="uri_folder", path=str(table)),
        deployment_name="doubling",
        params_override=[{"error_threshold": 0}],
    )
    endpoint.local.wait_for(job, "Completed")
    assert endpoint.output(job)["rows.txt"] == "['a.csv', 2]\n['a.csv', 4]\n"


def test_too_many_failures_fail_the_job_and_its_step(endpoint: Endpoint) -> None:
    given = endpoint.data(1, "no number", 3)
    job = endpoint.score(given, params_override=[{"error_threshold": 1}, {"mini_batch_size": 1}])
    strict = endpoint.score(given, params_override=[{"error_threshold": 0}])
    endpoint.local.wait_for(job, "Completed")
    endpoint.local.wait_for(strict, "Failed")
    assert "more than error_threshold = 0" in endpoint.local.log(endpoint.step(strict).name)


def test_what_cannot_work_is_refused(endpoint: Endpoint) -> None:
    ml = endpoint.ml
    with pytest.raises(HttpResponseError, match="is the default of endpoint 'weighing'"):
        ml.batch_deployments.begin_delete("plain", "weighing").result()
    with pytest.raises(HttpResponseError, match="has no deployment 'nothing'"):
        endpoint.set_default("nothing")
    with pytest.raises(ResourceNotFoundError, match="compute 'nothing' was not found"):
        endpoint.deploy("nowhere", {"compute": "azureml:nothing"})
    with pytest.raises(ResourceNotFoundError):
        ml.batch_deployments.get("nowhere", "weighing")
    component = f"{ml.workspaces.get('local').id}/components/hello/versions/1"
    steps = PipelineComponentBatchDeployment(
        name="steps", endpoint_name="weighing", component=component
    )
    with pytest.raises(HttpResponseError, match="PipelineComponent deployments of batch endpoints"):
        ml.batch_deployments.begin_create_or_update(steps).result()
    endpoint.put(BatchEndpoint(name="empty"))
    assert {each.name for each in ml.batch_endpoints.list()} >= {"weighing", "empty"}
    with pytest.raises(HttpResponseError, match="has no default deployment"):
        endpoint.score(endpoint.data(1), endpoint_name="empty")
    ml.batch_endpoints.begin_delete("empty").result()


def test_a_deployment_is_replaced_and_deleted(endpoint: Endpoint) -> None:
    endpoint.deploy("spare", {})
    assert endpoint.deploy("spare", {"settings.mini_batch_size": 5}).mini_batch_size == 5
    assert "spare" in {each.name for each in endpoint.ml.batch_deployments.list("weighing")}
    endpoint.ml.batch_deployments.begin_delete("spare", "weighing").result()
    with pytest.raises(ResourceNotFoundError, match="batch deployment 'weighing/spare'"):
        endpoint.ml.batch_deployments.get("spare", "weighing")
