"""A pipeline that deploys to an endpoint of its own, whose deployments are real processes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from azure.ai.ml.entities import Model as AzureMLModel

from handlers.rollout.deployments import ensure_deployment
from handlers.rollout.endpoints import ensure_endpoint, set_traffic, test_deployment
from harness.waiting import until
from orchestrations.configuration.deploy import EndpointKind
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.rollouts import (
    DeploymentState,
    EndpointTraffic,
    EnsureDeployment,
    EnsureEndpoint,
    RolloutRequest,
    SetTraffic,
    SmokeTest,
    TestDeployment,
)
from orchestrations.contracts.runs import Model
from orchestrations.names import deployment_name, rollout_id, smoke_job
from tests.local.handlers.cloud import Cloud
from tests.unit.orchestrations.examples import PIPELINE

SCRIPT = """
import json, os, pathlib

def init():
    global weight
    folder = pathlib.Path(os.environ["AZUREML_MODEL_DIR"]) / "model"
    weight = float((folder / "weight.txt").read_text())

def run(data):
    return json.loads(data)["x"] / weight
"""
DEPLOYMENT = """
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
code_configuration: {code: serving, scoring_script: score.py}
environment: {image: python}
"""
ONLINE = {
    "instance_type": "Standard_DS3_v2",
    "smoke_request": "request.json",
    "steps": [{"traffic": 100, "bake_minutes": 1}],
}
BATCH_SCRIPT = """
import os, pathlib

def init():
    global weight
    folder = pathlib.Path(os.environ["AZUREML_MODEL_DIR"]) / "model"
    weight = float((folder / "weight.txt").read_text())

def run(mini_batch):
    return [int(pathlib.Path(each).read_text()) / weight for each in mini_batch]
"""
BATCH_DEPLOYMENT = """
$schema: https://azuremlschemas.azureedge.net/latest/modelBatchDeployment.schema.json
type: model
code_configuration: {code: serving, scoring_script: score.py}
environment: {image: python}
settings: {mini_batch_size: 1, error_threshold: 0, retry_settings: {max_retries: 0}}
"""
numbers = count(1)


class Shop:
    """The pipeline.

    Args:
        cloud: with its endpoint.
        is_batch: whether it deploys to a batch endpoint.
        script: of an online deployment.
        deployment: its file.
        deploy: changes of its section `deploy`.
    """

    def __init__(
        self,
        cloud: Cloud,
        *,
        is_batch: bool = False,
        script: str = SCRIPT,
        deployment: str = DEPLOYMENT,
        deploy: Mapping[str, Any] | None = None,
    ) -> None:
        self.clients = cloud.clients
        self.name = f"shop{next(numbers)}"
        folder = cloud.pipelines / self.name
        (folder / "serving").mkdir(parents=True)
        (folder / "serving" / "score.py").write_text(BATCH_SCRIPT if is_batch else script)
        (folder / "deployment.yml").write_text(BATCH_DEPLOYMENT if is_batch else deployment)
        (folder / "request.json").write_text('{"x": 6}')
        self.endpoint = f"{self.name}-live"
        given = {"kind": "batch", "compute": "cpu"} if is_batch else ONLINE
        document = {
            **PIPELINE.model_dump(),
            "deploy": {"endpoint": self.endpoint, **given, **(deploy or {})},
        }
        model = {**document["model"], "name": self.name}
        self.pipeline = Pipeline.model_validate({**document, "name": self.name, "model": model})
        assert self.pipeline.deploy is not None
        self.kind: EndpointKind = self.pipeline.deploy.kind

    def model(self, version: str, weight: str) -> Model:
        path = f"models/{self.name}/{version}/model/"
        self.upload("landing", f"{path}weight.txt", weight)
        made = self.clients.ml.models.create_or_update(
            AzureMLModel(
                name=self.name,
                version=version,
                path=f"azureml://datastores/landing/paths/{path}",
                tags={"landfall.pipeline": self.name, "landfall.dataset-version": "v1"},
            )
        )
        return Model(name=self.name, version=version, path=str(made.path))

    def upload(self, container: str, path: str, content: str) -> None:
        self.clients.blobs.get_blob_client(container, path).upload_blob(content, overwrite=True)

    def deploy(self, model: Model) -> DeploymentState:
        request = EnsureDeployment(
            rollout=rollout_id(self.endpoint, model.version),
            deployment=deployment_name(model.version),
            request=RolloutRequest(pipeline=self.pipeline, model=model, run="run-1"),
        )

        def ended() -> DeploymentState | None:
            found = ensure_deployment(self.clients, request)
            return None if found.state == "provisioning" else found

        return until(ended, what=f"deployment of {model.version}")

    def ensure(self) -> EndpointTraffic:
        request = EnsureEndpoint(endpoint=self.endpoint, kind=self.kind, pipeline=self.name)
        return ensure_endpoint(self.clients, request)

    def set(self, traffic: dict[str, int], mirror: dict[str, int] | None = None) -> None:
        shares = EndpointTraffic(traffic=traffic, mirror=mirror or {})
        request = SetTraffic(endpoint=self.endpoint, kind=self.kind, traffic=shares)
        set_traffic(self.clients, request)

    def smoke(self, deployment: str, **given: object) -> SmokeTest:
        request = TestDeployment(
            endpoint=self.endpoint, deployment=deployment, pipeline=self.pipeline
        )
        if self.kind == "batch":
            given["smoke_job"] = smoke_job(self.endpoint, deployment)
        return test_deployment(self.clients, request.model_copy(update=given))

    def smoke_until_over(self, model: Model) -> None:
        deadline = datetime.now(UTC) + timedelta(minutes=5)

        def is_over() -> bool:
            tested = self.smoke(deployment_name(model.version), model=model, deadline=deadline)
            return tested.job is None

        until(is_over, what=f"smoke job of {model.version}")

    def tags(self, version: str) -> dict[str, str]:
        return self.clients.ml.models.get(self.name, version).tags or {}
