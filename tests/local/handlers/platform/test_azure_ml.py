"""The import of azure.ai.ml, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError, ServiceResponseError

from handlers.platform import clients as clients_module
from handlers.platform.activity_adapter import ActivityFault, as_function
from handlers.platform.clients import AZURE_ML_LIMITS_SECONDS, Clients
from handlers.platform.settings import APP_FOLDER, Settings
from handlers.training.jobs import get_job
from orchestrations.contracts.training import GetJob
from orchestrations.errors import TransientError
from orchestrations.platform.activities import parse_fault
from tests.local.http_server import JsonHandler, serving

PROGRAM = """
import http.server, json, os, threading

asked = []

class Metadata(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        cloud = {
            "name": "OtherCloud",
            "portal": "https://portal.other.example/",
            "resourceManager": "https://management.other.example/",
            "authentication": {"loginEndpoint": "https://login.other.example/"},
            "suffixes": {"storage": "core.other.example"},
        }
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps([cloud]).encode())

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Metadata)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["AZUREML_CURRENT_CLOUD"] = "OtherCloud"
os.environ["ARM_CLOUD_METADATA_URL"] = "https://127.0.0.1:9/metadata/endpoints"
from handlers.platform.azure_ml import import_azure_ml
try:
    import_azure_ml()
except Exception as error:
    print(type(error).__name__)

# The outage is over.
os.environ["ARM_CLOUD_METADATA_URL"] = f"http://127.0.0.1:{server.server_port}/metadata/endpoints"
import_azure_ml()
before = len(asked)
from azure.ai.ml import MLClient, load_job
from azure.ai.ml._azure_environments import _get_base_url_from_metadata
from azure.ai.ml._utils._asset_utils import FileUploadProgressBar, tqdm
assert tqdm(total=1).disable and FileUploadProgressBar(msg="a file").disable
print(MLClient.__name__, _get_base_url_from_metadata(), before > 0, len(asked) - before)
"""
CLOUD = "HungCloud"
# A hundredth of each limit that the app sets in the SDK.
SHORT = {name: limit / 100 for name, limit in AZURE_ML_LIMITS_SECONDS.items()}
# The SDK is loaded already; what is left is time that the machine is busy with others.
PATIENCE_SECONDS = 20.0


def test_an_outage_does_not_poison_the_process_and_endpoints_are_requested_only_at_the_import() -> (
    None
):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=APP_FOLDER, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    # The SDK also prints an error.
    printed = ended.stdout.split()
    assert "MlException" in printed
    assert printed[-4:] == ["MLClient", "https://management.other.example", "True", "0"]


class Identity:
    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken("token", int(time.time()) + 3600)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """Clients of a workspace whose server never answers; only the cloud's endpoints are known."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        endpoints = {
            "name": CLOUD,
            "portal": "https://portal.example.org",
            "resourceManager": f"https://127.0.0.1:{silent.getsockname()[1]}",
            "authentication": {
                "loginEndpoint": "https://login.example.org",
                "audiences": ["https://management.example.org"],
            },
            "suffixes": {"storage": "core.example.org"},
        }

        class Metadata(JsonHandler, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, [endpoints])

        monkeypatch.setenv("AZUREML_CURRENT_CLOUD", CLOUD)
        monkeypatch.setenv("ARM_CLOUD_METADATA_URL", stack.enter_context(serving(Metadata)))
        clients = Clients(
            Settings(
                {
                    "AZUREML_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000",
                    "AZUREML_RESOURCE_GROUP": "group",
                    "AZUREML_WORKSPACE_NAME": "workspace",
                }
            )
        )
        vars(clients)["credential"] = Identity()
        yield clients


def test_a_call_gives_up_within_its_limits(hung: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(AZURE_ML_LIMITS_SECONDS.values()) < GetJob.LIMIT_SECONDS
    monkeypatch.setattr(clients_module, "AZURE_ML_LIMITS_SECONDS", SHORT)
    started = time.monotonic()
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        get_job(hung, GetJob(job="digits-aa-1"))
    assert time.monotonic() - started < PATIENCE_SECONDS


def test_an_activity_ends_whatever_the_sdk_does(
    hung: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limits of the app, which are longer than the activity's here."""
    monkeypatch.setattr(GetJob, "LIMIT_SECONDS", 0.5)
    started = time.monotonic()
    with pytest.raises(ActivityFault) as raised:
        as_function(GetJob, get_job, hung)(GetJob(job="digits-aa-1").to_dict())
    assert time.monotonic() - started < PATIENCE_SECONDS
    fault = parse_fault(str(raised.value))
    assert (type(fault), str(fault)) == (TransientError, "activity get_job: no result within 0.5 s")
