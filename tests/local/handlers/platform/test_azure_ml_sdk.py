"""The import of azure.ai.ml, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

from handlers.platform.settings import APP_FOLDER

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
from handlers.platform.azure_ml_sdk import import_azure_ml
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
