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
print(MLClient.__name__)
"""


def test_an_outage_at_the_first_import_does_not_poison_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=APP_FOLDER, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    # The SDK prints an error of its own in between.
    assert ended.stdout.split()[0] == "MlException" or "MlException" in ended.stdout
    assert ended.stdout.split()[-1] == "MLClient"
