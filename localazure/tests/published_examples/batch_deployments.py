"""Deploys and invokes the batch deployments of azureml-examples, as `deploy-and-run.sh` does.

The model is the folder `model` next to the deployment, or in its parent folder. The input is the
folder `data` there, or the public URL in the script.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path("cli", "endpoints", "batch")
# The clusters that the scripts create.
CLUSTERS: Final = ("batch-cluster", "batch-cluster-lp")
_MODEL: Final = re.compile(r"azureml:(?P<name>[^@:]+)@latest")
_PUBLIC_INPUT: Final = re.compile(r"https://azuremlexampledata\S+")
_COMPONENT: Final = "pipelineComponentBatchDeployment"


def deployment_files(sources: Path) -> list[Path]:
    """Every file of a model deployment under `cli/endpoints/batch`."""
    found = sorted((sources / FOLDER).rglob("deployment*.y*ml"))
    return [each for each in found if _COMPONENT not in each.read_text()]


def invoke(ml: Any, file: Path) -> str:
    """Create endpoint, model and deployment, start the scoring job, and return its name."""
    # The import requests the cloud's metadata.
    from azure.ai.ml import Input, load_batch_endpoint  # noqa: PLC0415
    from azure.ai.ml.entities import Model  # noqa: PLC0415
    from azure.ai.ml.entities._load_functions import load_model_batch_deployment  # noqa: PLC0415

    name = f"e{uuid.uuid4().hex[:12]}"
    named = [{"name": name}]
    endpoint = load_batch_endpoint(_find(file, "endpoint.yml"), params_override=named)
    ml.batch_endpoints.begin_create_or_update(endpoint).result()
    registered = _MODEL.search(file.read_text())
    if registered is not None:
        folder = _find(file, "model")
        kind = "mlflow_model" if (folder / "MLmodel").is_file() else "custom_model"
        ml.models.create_or_update(Model(name=registered["name"], path=str(folder), type=kind))
    of_endpoint = [{"endpoint_name": name}]
    deployment = load_model_batch_deployment(file, params_override=of_endpoint)
    ml.batch_deployments.begin_create_or_update(deployment).result()
    given = Input(type="uri_folder", path=_data(file))
    started = ml.batch_endpoints.invoke(
        endpoint_name=name, deployment_name=deployment.name, inputs={"data": given}
    )
    return str(started.name)


def _find(file: Path, name: str) -> Path:
    """A file or folder next to a deployment, or in its parent folder.

    Raises:
        FileNotFoundError: it is in neither folder.
    """
    for folder in (file.parent, file.parent.parent):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"there is no {name}: deploy-and-run.sh fetches it")


def _data(file: Path) -> str:
    try:
        return str(_find(file, "data"))
    except FileNotFoundError:
        found = _PUBLIC_INPUT.search(_find(file, "deploy-and-run.sh").read_text())
        if found is None:
            raise
        return found[0].strip("'\"")
