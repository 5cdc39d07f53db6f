"""A running workspace for tests: parts as processes, SDK clients, a topic."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
import yaml
from azure.ai.ml import MLClient, command, load_job
from azure.ai.ml.entities import AmlCompute
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobServiceClient
from requests.adapters import HTTPAdapter

from harness.part_process import PartProcess
from harness.waiting import until
from localazure.faults.current_plan import remove_plan, set_plan
from localazure.faults.plan import Plan
from localazure.machinelearning.addresses import workspace_id
from localazure.machinelearning.client_settings import app_settings
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.environment import Environment
from localazure.runtime.identity import APP, client_id_of

ENVIRONMENT = "azureml:torch:1"
AZURE_ML = {
    "datastores": [{"name": "landing", "containerName": "landing"}],
    "quota": {"Standard_NC24scarce": 1, "Standard_None": 0},
    "totalLowPriorityCores": 96,
    "provisioningSeconds": 0.2,
    "environments": "build",
    "otherWorkspaces": [{"name": "Other", "resourceGroup": "elsewhere"}],
}


@dataclass
class EventGridTopic:
    """The publish endpoint of a topic, which keeps the published events."""

    port: int
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: set[str | None] = field(default_factory=set[str | None])

    @contextmanager
    def open(self) -> Generator[EventGridTopic]:
        topic = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.startswith("/topics/azure-ml/"):
                    topic.events.extend(json.loads(body))
                    topic.keys.add(self.headers["aeg-sas-key"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@dataclass
class Local:
    """The parts and clients that a test uses."""

    environment: Environment
    ml: Any
    """The MLClient, untyped because its entities have wide unions as types."""
    blobs: BlobServiceClient
    workspace: PartProcess
    storage: PartProcess
    topic: EventGridTopic
    http: requests.Session

    def make_cluster(self, name: str, **fields: Any) -> None:
        defaults: dict[str, Any] = {"size": "Standard_D2", "min_instances": 0, "max_instances": 2}
        cluster = AmlCompute(name=name, **{**defaults, **fields})
        self.ml.compute.begin_create_or_update(cluster).result()

    def submit(self, name: str, text: str, **fields: Any) -> None:
        """Submit a command job."""
        job = command(name=name, command=text, environment=ENVIRONMENT, **fields)
        assert self.ml.jobs.create_or_update(job).name == name

    def submit_document(self, document: dict[str, Any]) -> None:
        """Submit the job of a YAML document."""
        job: Any = load_job(io.StringIO(yaml.safe_dump(document)), relative_origin=__file__)
        assert self.ml.jobs.create_or_update(job).name == document["name"]

    def cancel(self, name: str) -> None:
        """Cancel a job, and wait for its end."""
        self.ml.jobs.begin_cancel(name).result()
        self.wait_for(name, "Canceled")

    def children(self, name: str) -> dict[str, str]:
        """Return the names and statuses of a job's children."""
        return {job.name: job.status for job in self.ml.jobs.list(parent_job_name=name)}

    def read_blob(self, container: str, path: str) -> bytes:
        return self.blobs.get_blob_client(container, path).download_blob().readall()

    def list_blobs(self, container: str, prefix: str) -> list[str]:
        found = self.blobs.get_container_client(container).list_blobs(name_starts_with=prefix)
        return sorted(blob.name.removeprefix(prefix) for blob in found)

    def status(self, job: str) -> str:
        """Read a job's status over HTTP, which is faster than the SDK."""
        answer = self.ask_arm("GET", f"jobs/{job}?api-version=2024-10-01")
        answer.raise_for_status()
        return answer.json()["properties"]["status"]

    def wait_for(self, job: str, *statuses: str) -> str:
        def reached() -> str | None:
            status = self.status(job)
            ended = status in {"Completed", "Failed", "Canceled"}
            assert status in statuses or not ended, f"{job} is {status}: {self.log(job)}"
            return status if status in statuses else None

        return until(reached, what=f"status of {job} among {statuses}")

    def ask(self, method: str, path: str) -> requests.Response:
        """Send a request for which the SDK has no method."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = self.environment.azure_ml_url + path
        return self.http.request(method, url, headers=headers, timeout=10)

    def ask_arm(self, method: str, path: str) -> requests.Response:
        """Send a request to a path below the workspace's id."""
        return self.ask(method, f"{workspace_id(self.environment)}/{path}")

    @cached_property
    def token(self) -> str:
        scope = f"{self.environment.azure_ml_url}/.default"
        with DefaultAzureCredential() as credential:
            return credential.get_token(scope).token

    def error(self, job: str) -> str:
        """Return code and message of a failed job's error."""
        details = self.ml.jobs._runs_operations.get_run_details(job)
        return f"{details.error.error.code}: {details.error.error.message}"

    def log(self, job: str) -> str:
        folder = f"ExperimentRun/dcid.{job}/user_logs/"
        names = self.list_blobs("azureml", folder)
        return "\n".join(self.read_blob("azureml", folder + name).decode() for name in names)


@contextmanager
def azure_ml_settings(environment: Environment) -> Generator[None]:
    """Set the app settings with which the SDK finds the workspace, in this process."""
    # The SDK loads its CA file for most requests: certifi's file takes 25 ms each time.
    settings = {**app_settings(environment), "REQUESTS_CA_BUNDLE": str(environment.ca)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.setenv("AZURE_CLIENT_ID", client_id_of(APP))
        patch.setenv("AZUREML_RUN_POLLING_INTERVAL_MIN", "1")
        yield


@contextmanager
def local_workspace(state: Path) -> Generator[Local]:
    """Run a workspace and its storage, with their clients, on an empty state folder."""
    (state / "azure-ml.json").write_text(json.dumps(AZURE_ML))
    (state / "storage.json").write_text(json.dumps({"containers": ["landing"]}))
    environment = Environment.draw(state, app=state, config=state)
    environment.save()
    ensure_certificates(environment)
    with ExitStack() as stack:
        with azure_ml_settings(environment):
            storage = stack.enter_context(PartProcess("storage", state))
            workspace = stack.enter_context(PartProcess("machinelearning", state))
            connection = environment.storage_connection_string()
            blobs = stack.enter_context(BlobServiceClient.from_connection_string(connection))
            topic = stack.enter_context(EventGridTopic(environment.ports.event_grid).open())
            # Created after the workspace has started: it requests the cloud's metadata.
            ml = MLClient(
                DefaultAzureCredential(),
                environment.subscription_id,
                environment.resource_group,
                environment.workspace,
            )
            http = stack.enter_context(requests.Session())
            # Retries reopen a connection that the workspace closed when it restarted.
            http.mount("https://", HTTPAdapter(max_retries=3))
        yield Local(environment, ml, blobs, workspace, storage, topic, http)


# A model in MLflow's file format, written without MLflow.
# https://mlflow.org/docs/latest/api_reference/python_api/mlflow.pyfunc.html#filesystem-format
_MLFLOW_MODEL = """
flavors:
  python_function: {loader_module: doubling, code: code}
"""
_DOUBLING = """
class Doubling:
    def predict(self, model_input, params=None):
        return [2 * x for x in model_input["x"]]

def _load_pyfunc(path):
    return Doubling()
"""


def write_mlflow_model(folder: Path) -> None:
    """A model that doubles the column `x`."""
    (folder / "code").mkdir(parents=True)
    (folder / "MLmodel").write_text(_MLFLOW_MODEL)
    (folder / "code" / "doubling.py").write_text(_DOUBLING)


@contextmanager
def fault(local: Local, **rule: object) -> Generator[None]:
    """Apply a rule of faults while the context lasts, by default to the workspace."""
    state = local.environment.state
    rules = [{"part": "machinelearning", **rule}]
    set_plan(state, Plan.model_validate({"seed": uuid.uuid4().int, "rules": rules}))
    try:
        yield
    finally:
        remove_plan(state)
