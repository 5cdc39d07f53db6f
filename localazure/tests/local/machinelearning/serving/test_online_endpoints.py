"""The real SDK creates endpoints with deployments, which are processes, and scores them."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from harness.local_workspace import Local, fault, write_mlflow_model
from harness.waiting import until
from localazure.machinelearning.addresses import workspace_id
from localazure.machinelearning.serving import scoring_server

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from azure.ai.ml.entities import (
        CodeConfiguration,
        DataCollector,
        DeploymentCollection,
        ManagedOnlineDeployment,
        ManagedOnlineEndpoint,
        Model,
        OnlineRequestSettings,
    )

SCRIPT = """
import json, os, pathlib, time

def init():
    global weight, pid
    print("init of", os.environ["NAME"])
    if os.environ["NAME"] == "broken":
        raise ValueError("the weights are damaged")
    folder = pathlib.Path(os.environ["AZUREML_MODEL_DIR"]) / "model"
    weight = float((folder / "weight.txt").read_text())

def run(data):
    asked = json.loads(data)
    time.sleep(asked.get("seconds", 0))
    if asked.get("fail"):
        raise RuntimeError("no score for this")
    return {"score": asked["x"] * weight, "name": os.environ["NAME"], "pid": os.getpid()}
"""

COLLECTING_SCRIPT = """
import json
import pandas as pd
from azureml.ai.monitoring import Collector
from azureml.ai.monitoring.context import BasicCorrelationContext

def init():
    global inputs, outputs
    inputs, outputs = Collector(name="model_inputs"), Collector(name="model_outputs")

def run(data):
    asked = json.loads(data)
    context = inputs.collect(pd.DataFrame([asked]), BasicCorrelationContext(id=asked["id"]))
    outputs.collect(pd.DataFrame([{"score": 2 * asked["x"]}]), context)
    return {"score": 2 * asked["x"]}
"""


class Endpoint:
    """An endpoint, and the operations of the tests on it."""

    def __init__(self, local: Local, folder: Path, name: str) -> None:
        self.local, self.ml, self.folder, self.name = local, local.ml, folder, name
        code = folder / "code"
        code.mkdir()
        (code / "score.py").write_text(SCRIPT)
        made = ManagedOnlineEndpoint(name=name, auth_mode="key")
        self.ml.online_endpoints.begin_create_or_update(made).result()
        self.uri: str = self.ml.online_endpoints.get(name).scoring_uri
        self.key: str = self.ml.online_endpoints.get_keys(name).primary_key

    def model(self, version: str, weight: float) -> str:
        blob = f"models/{self.name}/{version}/model/weight.txt"
        self.local.blobs.get_blob_client("landing", blob).upload_blob(str(weight), overwrite=True)
        path = f"azureml://datastores/landing/paths/models/{self.name}/{version}/model/"
        model = Model(name=self.name, version=version, path=path, type="custom_model")
        self.ml.models.create_or_update(model)
        return f"azureml:{self.name}:{version}"

    def deploy(self, name: str, model: str, **settings: Any) -> Any:
        code = CodeConfiguration(code=str(self.folder / "code"), scoring_script="score.py")
        defaults = {
            "code_configuration": code,
            "instance_type": "Standard_DS3_v2",
            "environment_variables": {"NAME": name},
        }
        fields: dict[str, Any] = {"model": model, "instance_count": 1, **defaults, **settings}
        deployment = ManagedOnlineDeployment(name=name, endpoint_name=self.name, **fields)
        return self.ml.online_deployments.begin_create_or_update(
            deployment, skip_script_validation=True
        ).result()

    def events(self) -> list[dict[str, Any]]:
        subject = f"endpoints/{self.name}"
        return [each for each in self.local.topic.events if each["subject"] == subject]

    def set_traffic(self, traffic: dict[str, int], mirror: dict[str, int] | None = None) -> None:
        endpoint = self.ml.online_endpoints.get(self.name)
        endpoint.traffic, endpoint.mirror_traffic = traffic, mirror or {}
        self.ml.online_endpoints.begin_create_or_update(endpoint).result()

    def score(self, deployment: str | None = None, **asked: Any) -> requests.Response:
        return self.post({"x": 2, **asked}, deployment)

    def post(self, document: Any, deployment: str | None = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        if deployment is not None:
            headers["azureml-model-deployment"] = deployment
        return self.local.http.post(self.uri, json=document, headers=headers, timeout=30)

    def metrics(self, name: str, condition: str) -> dict[str, float]:
        """Value of the metric's split dimension → the sum over all minutes."""
        now = datetime.now(UTC)
        # A minute is in the span if it begins before its end: also the one that began this second.
        ends = (now - timedelta(minutes=10), now + timedelta(minutes=1))
        first, last = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in ends)
        query = {
            "api-version": "2023-10-01",
            "metricnames": name,
            "timespan": f"{first}/{last}",
            "interval": "PT1M",
            "aggregation": "Average",
            "$filter": condition,
        }
        path = f"onlineEndpoints/{self.name}/providers/Microsoft.Insights/metrics"
        answer = self.local.ask_arm("GET", f"{path}?{urlencode(query)}")
        assert answer.ok, answer.text
        (metric,) = answer.json()["value"]
        return {
            series["metadatavalues"][0]["value"]: sum(point["average"] for point in series["data"])
            for series in metric["timeseries"]
        }


@pytest.fixture
def endpoint(local: Local, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    digest = abs(hash(request.node.name)) % 10**8
    endpoint = Endpoint(local, tmp_path, f"e{digest}")
    yield endpoint
    # Every restart of the workspace starts the processes of all deployments.
    local.ml.online_endpoints.begin_delete(endpoint.name).result()


def test_a_model_is_deployed_scored_and_deleted(endpoint: Endpoint, tmp_path: Path) -> None:
    deployed = endpoint.deploy("blue", endpoint.model("1", 3.0), tags={"colour": "blue"})
    assert deployed.provisioning_state == "Succeeded"
    (event,) = until(endpoint.events)
    assert event["eventType"] == "Microsoft.MachineLearningServices.ModelDeployed"
    assert event["data"] == {
        "ServiceName": endpoint.name,
        "ServiceComputeType": "Managed",
        "ModelIds": f"{endpoint.name}:1",
        "ServiceTags": {"colour": "blue"},
        "ServiceProperties": event["data"]["ServiceProperties"],
    }
    assert endpoint.score().status_code == 404, "no deployment has traffic"
    endpoint.set_traffic({"blue": 100})
    answer = endpoint.score()
    assert (answer.status_code, answer.json()["score"]) == (200, 6.0)
    assert answer.headers["azureml-model-deployment"] == "blue"
    (tmp_path / "request.json").write_text('{"x": 5}')
    text = endpoint.ml.online_endpoints.invoke(
        endpoint.name, deployment_name="blue", request_file=str(tmp_path / "request.json")
    )
    assert json.loads(text)["score"] == 15.0
    logs = endpoint.ml.online_deployments.get_logs("blue", endpoint.name, lines=50)
    assert "init of blue" in logs
    endpoint.ml.online_endpoints.begin_regenerate_keys(endpoint.name, key_type="primary").result()
    assert endpoint.score().status_code == 401
    endpoint.key = endpoint.ml.online_endpoints.get_keys(endpoint.name).primary_key
    assert endpoint.score().status_code == 200
    with pytest.raises(HttpResponseError, match="gets traffic"):
        endpoint.ml.online_deployments.begin_delete("blue", endpoint.name).result()
    endpoint.set_traffic({})
    endpoint.ml.online_deployments.begin_delete("blue", endpoint.name).result()
    assert not list(endpoint.ml.online_deployments.list(endpoint.name))
    endpoint.ml.online_endpoints.begin_delete(endpoint.name).result()
    with pytest.raises(ResourceNotFoundError):
        endpoint.ml.online_endpoints.get(endpoint.name)
    assert len(endpoint.events()) == 1


def test_failures_of_the_model_have_azures_statuses_and_are_counted(endpoint: Endpoint) -> None:
    model = endpoint.model("1", 1.0)
    settings = OnlineRequestSettings(request_timeout_ms=1000)
    endpoint.deploy("green", model, request_settings=settings)
    assert endpoint.score("green").status_code == 200
    failed = endpoint.score("green", fail=True)
    assert failed.status_code == 424
    assert failed.headers["ms-azureml-model-error-statuscode"] == "500"
    assert "no score for this" in failed.text
    assert endpoint.score("green", seconds=1.5).status_code == 408
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(endpoint.score, "green", seconds=0.5) for _ in range(6)]
        found = {each.result().status_code for each in answers}
        assert 429 in found, "twice the concurrency of an instance may wait"
    by_status = endpoint.metrics("RequestsPerMinute", "deployment eq 'green' and statusCode eq '*'")
    assert by_status.keys() >= {"200", "424", "408", "429"}
    assert (by_status["424"], by_status["408"]) == (1, 1)
    assert endpoint.metrics("RequestLatency_P95", "deployment eq '*'")["green"] > 900


def test_an_mlflow_model_needs_no_scoring_script(endpoint: Endpoint, tmp_path: Path) -> None:
    write_mlflow_model(tmp_path / "doubling")
    path = str(tmp_path / "doubling")
    model = Model(name="online-doubling", version="1", path=path, type="mlflow_model")
    endpoint.ml.models.create_or_update(model)
    endpoint.deploy("plain", "azureml:online-doubling:1", code_configuration=None)
    table = {"columns": ["x"], "index": [0, 1], "data": [[2.0], [3.0]]}
    answer = endpoint.post({"input_data": table}, "plain")
    assert (answer.status_code, answer.json()) == (200, [4.0, 6.0])
    refused = endpoint.post({"x": 2}, "plain")
    assert refused.headers["ms-azureml-model-error-statuscode"] == "500"
    assert "top level key named 'input_data'" in refused.text


def test_traffic_is_split_and_mirrored(endpoint: Endpoint) -> None:
    endpoint.deploy("blue", endpoint.model("1", 1.0))
    endpoint.deploy("green", endpoint.model("2", 10.0))
    endpoint.set_traffic({"blue": 100}, {"green": 50})
    for _ in range(40):
        assert endpoint.score().json()["name"] == "blue"

    def mirrored() -> float:
        return endpoint.metrics("RequestsPerMinute", "deployment eq '*'").get("green", 0)

    assert 5 <= until(mirrored, what="mirrored requests") <= 35
    endpoint.set_traffic({"blue": 50, "green": 50})
    names = Counter(endpoint.score().json()["name"] for _ in range(40))
    assert min(names["blue"], names["green"]) >= 5


def test_what_cannot_be_deployed_says_why(endpoint: Endpoint) -> None:
    model = endpoint.model("1", 1.0)
    with pytest.raises(HttpResponseError, match="the weights are damaged") as failure:
        endpoint.deploy("broken", model)
    assert "ResourceNotReady" in str(failure.value)
    found = endpoint.ml.online_deployments.get("broken", endpoint.name)
    assert found.provisioning_state == "Failed"
    with pytest.raises(HttpResponseError, match="BadArgument"):
        endpoint.deploy("missing", "azureml:nothing:1")
    with pytest.raises(HttpResponseError, match="only a model of type mlflow_model is served"):
        endpoint.deploy("bare", model, code_configuration=None)
    with pytest.raises(HttpResponseError, match="OutOfQuota"):
        endpoint.deploy("blue", model, instance_type="Standard_None")


def test_a_deployment_without_capacity_fails_and_is_put_again(endpoint: Endpoint) -> None:
    model = endpoint.model("1", 4.0)
    with (
        fault(endpoint.local, operation="deployment/Standard_DS3_v2", fault="shortage"),
        pytest.raises(HttpResponseError, match="OutOfCapacity"),
    ):
        endpoint.deploy("blue", model)
    assert endpoint.ml.online_deployments.get("blue", endpoint.name).provisioning_state == "Failed"
    endpoint.deploy("blue", model)
    assert endpoint.score("blue").json()["score"] == 8.0


def test_a_killed_process_and_a_killed_workspace_serve_again(endpoint: Endpoint) -> None:
    endpoint.deploy("blue", endpoint.model("1", 4.0))
    endpoint.set_traffic({"blue": 100})
    first = endpoint.score().json()["pid"]
    deployments = endpoint.local.environment.part_folder("machinelearning") / "online"
    folder = deployments / endpoint.name / "blue"
    folder.rename(folder.with_name("away"))  # the next process cannot be started
    os.kill(first, signal.SIGKILL)
    logged = f"{endpoint.name}/blue: [Errno 2]"
    until(lambda: logged in endpoint.local.workspace.output, what="failure of the restart")
    folder.with_name("away").rename(folder)

    def scored() -> dict[str, Any] | None:
        answer = endpoint.score()
        return answer.json() if answer.status_code == 200 else None

    second = until(scored, what="score after the death of the process")["pid"]
    assert second != first
    endpoint.local.workspace.end(signal.SIGKILL)
    endpoint.local.workspace.start()
    third = until(scored, what="score after the death of the workspace")
    assert (third["score"], third["pid"]) not in {(8.0, first), (8.0, second)}
    assert endpoint.metrics("RequestsPerMinute", "deployment eq '*'")["blue"] >= 2


def test_a_deployment_collects_what_it_is_asked_and_answers(endpoint: Endpoint) -> None:
    (endpoint.folder / "code" / "score.py").write_text(COLLECTING_SCRIPT)
    names = ("model_inputs", "model_outputs", "request", "response")
    collections = {name: DeploymentCollection(enabled="true") for name in names}
    collections["off"] = DeploymentCollection(enabled="false")
    collector = DataCollector(collections=collections)
    endpoint.deploy("green", endpoint.model("1", 1.0), data_collector=collector)
    began = datetime.now(UTC).replace(microsecond=0)
    assert endpoint.score("green", id="first").json() == {"score": 4}
    container, root = "azureml-blobstore", f"modelDataCollector/{endpoint.name}/green/"

    def lines(collection: str) -> list[Any]:
        blobs = endpoint.local.list_blobs(container, f"{root}{collection}/")
        texts = [endpoint.local.read_blob(container, f"{root}{collection}/{b}") for b in blobs]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    landed = endpoint.local.blobs.get_container_client(container)
    until(landed.exists, what="the default datastore's container")
    collected = {name: until(lambda n=name: lines(n), what=name)[0] for name in names}
    assert {name: line["data"] for name, line in collected.items()} == {
        "model_inputs": [{"x": 2, "id": "first"}],
        "model_outputs": [{"score": 4}],
        "request": {"x": 2, "id": "first"},
        "response": {"score": 4},
    }
    output = collected["model_outputs"]
    deployment = f"onlineEndpoints/{endpoint.name}/deployments/green"
    assert output["source"] == f"{workspace_id(endpoint.local.environment)}/{deployment}"
    assert output["type"] == "azureml.inference.model_outputs"
    assert output["collectdatatype"].endswith("DataFrame")
    assert output["correlationid"] == output["xrequestid"] == "first"
    assert collected["request"]["correlationid"] == collected["response"]["correlationid"]
    assert datetime.fromisoformat(output["time"]) >= began
    (blob,) = endpoint.local.list_blobs(container, f"{root}response/")
    assert blob.startswith(f"{began:%Y/%m/%d/}")
    assert not endpoint.local.list_blobs(container, f"{root}off/")


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "same-site"}, {"Host": "a.example"}],
)
def test_no_web_page_calls_an_instance(headers: dict[str, str]) -> None:
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), scoring_server.handler(asked.append)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/score"
        assert requests.post(url, "mine", timeout=60).status_code == 200
        assert requests.post(url, "its", headers=headers, timeout=60).status_code == 403
        server.shutdown()
    assert asked == ["mine"]
