"""What a process of the app imports, and when: a cold start waits for it."""

from __future__ import annotations

import json
import subprocess
import sys

from handlers.platform.settings import APP_FOLDER

PROGRAM = """
import json, os, sys

def loaded(*names):
    return [name for name in names if name in sys.modules]

import function_app
of_the_app = loaded("torch", "azure.ai.ml", "localazure", "trainers")

from handlers.training import compute_clusters
from handlers.training import assets
from handlers.training import job_outputs
from handlers.training import jobs
from handlers.platform import clients
from handlers.platform import settings
from handlers.platform import activity_adapter
from handlers.operate.api import explain
from handlers.operate.api import run_requests
from handlers.operate import job_events
from handlers.operate.reconciliation import reconciliation
off = clients.Clients(settings.Settings({}))
of_clients = loaded(
    "azure.ai.ml", "azure.storage", "azure.servicebus", "azure.eventgrid", "azure.identity"
)

from datetime import UTC, datetime
from handlers.platform.spans import Span
from orchestrations.contracts.runs import CancelRequest
from orchestrations.platform.trace_context import TraceContext
heavy = "opentelemetry.sdk", "requests", "azure.monitor"
now, root = datetime.now(UTC), TraceContext.root("a")
span = Span(context=root, parent=None, name="a", began_at=now, ended_at=now)
off.telemetry.send([span])
on = clients.Clients(settings.Settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}))
on.telemetry.send([])
of_telemetry = loaded(*heavy)
on.telemetry.send([span])
telemetry = [off.telemetry.is_on, "opentelemetry.sdk" in loaded(*heavy)]

from handlers.training.job_outputs import read_results
from orchestrations.names import results_folder
from handlers.platform.run_records import read_bad_files, read_metrics
from handlers.platform.run_records import request_cancel
from orchestrations.contracts.training import ReadResults
from tests.fakes.azure_ml import make_world

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
of_names = [name for name in sys.modules if name.startswith("azure.ai")]

print(json.dumps([of_the_app, of_clients, of_telemetry, telemetry, of_names]), flush=True)
os._exit(0)  # without waiting for the exporter
"""


def test_large_modules_are_imported_only_when_a_call_needs_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, cwd=APP_FOLDER
    )
    of_the_app, of_clients, of_telemetry, telemetry, of_names = json.loads(
        done.stdout.splitlines()[-1]
    )
    assert of_the_app == []
    assert of_clients == [], "clients load an SDK when they are first used"
    assert of_telemetry == [], "without a setting and without a span nothing is exported"
    assert telemetry == [False, True]
    assert of_names == [], "what needs only names and blobs loads no azure.ai.ml"
