from __future__ import annotations

import subprocess
import sys

from handlers.configuration.settings import APP_FOLDER

# In a process of its own: the import is what is tested.
PROGRAM = """
import os
os.environ["AZUREML_CURRENT_CLOUD"] = "NowhereCloud"
os.environ["ARM_CLOUD_METADATA_URL"] = "https://127.0.0.1:9/metadata/endpoints"
from handlers.azure_ml.sdk import import_azure_ml
try:
    import_azure_ml()
except Exception as error:
    print(type(error).__name__)
os.environ["AZUREML_CURRENT_CLOUD"] = "AzureCloud"  # the outage is over
import_azure_ml()
from azure.ai.ml import MLClient, load_job
from azure.ai.ml._utils._asset_utils import FileUploadProgressBar, tqdm
assert tqdm(total=1).disable and FileUploadProgressBar(msg="a file").disable
print(MLClient.__name__)
"""


def test_an_outage_at_the_first_import_does_not_poison_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=APP_FOLDER, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    # The SDK also prints an error.
    assert ended.stdout.split()[0] == "MlException" or "MlException" in ended.stdout
    assert ended.stdout.split()[-1] == "MLClient"


OTHER_CLOUD = """
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
os.environ["ARM_CLOUD_METADATA_URL"] = f"http://127.0.0.1:{server.server_port}/metadata/endpoints"
from handlers.azure_ml.sdk import import_azure_ml
import_azure_ml()
before = len(asked)
from azure.ai.ml._azure_environments import _get_base_url_from_metadata
print(_get_base_url_from_metadata(), before > 0, len(asked) - before)
"""


def test_the_endpoints_of_another_cloud_are_asked_for_only_while_the_sdk_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_CLOUD],
        check=True,
        capture_output=True,
        text=True,
        cwd=APP_FOLDER,
    )
    assert done.stdout.split() == ["https://management.other.example", "True", "0"]


WITHOUT_AZURE_ML = """
import json, sys
from handlers.azure_ml import compute_clusters, data_assets, job_outputs, jobs, model_registry
from handlers.configuration import clients, settings
from handlers.durable import activity_adapter
from handlers.triggers import explain, http_api, job_events, reconciliation
clients.Clients(settings.Settings({}))
sdks = "azure.ai.ml", "azure.storage", "azure.servicebus", "azure.eventgrid", "azure.identity"
print(*(sdk for sdk in sdks if sdk in sys.modules))

from handlers.azure_ml.job_outputs import read_bad_files, read_metrics, read_results, results_folder
from handlers.azure_ml.jobs import request_cancel
from orchestrations.contracts.jobs import CancelRequest, ReadResults
from tests.unit.handlers.azure_ml_fake import make_world

world = make_world()
del vars(world.clients)["ml"]  # what asks for it would load the SDK
request = ReadResults(
    pipeline="digits", run="r", container="azureml-blobstore", completed=False, metrics=[]
)
error = {"type": "DataRejected", "message": "bad", "files": [{"path": "a", "reason": "empty"}]}
world.results.blobs[results_folder("digits", "r") + "error.json"] = json.dumps(error).encode()
assert read_results(world.clients, request).bad_files == 1
assert read_bad_files(world.clients, "r") == {"a": "empty"}
assert read_metrics(world.clients, "runs/r/results.json") == {}
request_cancel(world.clients, "r", CancelRequest(by="ada", reason="a mistake"))
print(*(name for name in sys.modules if name.startswith("azure.ai")))
"""


def test_what_is_imported_loads_no_sdk_and_what_needs_only_names_does_not_load_azure_ml() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_AZURE_ML], check=True, capture_output=True, text=True
    )
    assert done.stdout == "\n\n"
