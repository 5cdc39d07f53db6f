"""A sweep, a pipeline of steps, and the plug-ins of docs/trainers.md, end to end."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from azure.storage.blob import BlobClient
from PIL import Image

from handlers.platform.configuration.pipeline_files import parse_pipeline
from handlers.training.assets import register_model
from handlers.training.job_outputs import read_results
from handlers.training.jobs import submit_job
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.runs import Model
from orchestrations.contracts.training import Job, ReadResults, RegisterModel, Results
from tests.local.handlers.cloud import Cloud
from tests.local.handlers.training.submissions import submission, wait_until
from tests.unit.orchestrations.examples import FROZEN_AT

# azure.ai.ml speaks to marshmallow 3 as marshmallow 4 will not allow.
pytestmark = pytest.mark.filterwarnings("ignore::marshmallow.warnings.Marshmallow4Warning")

EXAMPLES = Path(__file__).parents[4] / "pipelines"
TRAINERS = EXAMPLES.parent / "trainers"
# The file that MLflow's client writes, without a second start of torch.
LOW_SCORE = (
    "if [ ${{search_space.learning_rate}} = 0.001 ]; then"
    ' echo "1 0.1 0" >>'
    ' "$(ls -d ${MLFLOW_TRACKING_URI#file://}/*/$MLFLOW_RUN_ID)/metrics/held_out_accuracy";'
    " exit 0; fi;"
)
"""The trial with the lower learning rate logs a low score and does not train."""
POLL_SECONDS = 0.3  # these jobs take seconds, and the SDK tens of milliseconds for an answer


def deploy(cloud: Cloud, name: str, replacements: dict[str, str]) -> Pipeline:
    """An example pipeline, with changes in its job file."""
    folder = cloud.pipelines / Path(name).name
    # Another module that shares the workspace may have a pipeline of the same name.
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)
    file = folder / "job.yml"
    text = file.read_text()
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text)
    pipeline_file = folder / "pipeline.yml"
    return parse_pipeline(pipeline_file, pipeline_file.read_text(), records_container="landfall")


def land(cloud: Cloud, pipeline: Pipeline, count: int) -> Dataset:
    """Upload noisy images of five patterns, and freeze their manifest."""
    lines: list[str] = []
    landing = cloud.clients.blobs.get_container_client("landing")
    for number in range(count):
        label = number % 5
        pattern = np.random.default_rng(label).integers(64, 192, (8, 8))
        noise = np.random.default_rng(number).integers(-32, 32, (8, 8))
        stream = io.BytesIO()
        Image.fromarray((pattern + noise).astype(np.uint8)).save(stream, "PNG")
        content = stream.getvalue()
        path = f"{label}/{number:04d}.png"
        landing.upload_blob(pipeline.source.prefix + path, content, overwrite=True)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        line = {"path": path, "size": len(content), "md5": md5, "etag": "0x1"}
        lines.append(json.dumps(line) + "\n")
    text = "".join(sorted(lines))
    version = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = f"manifests/{pipeline.name}/{version}"
    records = cloud.clients.records
    records.upload_blob(f"{folder}/manifest.jsonl", text, overwrite=True)
    records.upload_blob(f"{folder}/MLTable", "", overwrite=True)
    return Dataset(version=version, blobs=count, bytes=1, frozen_at=FROZEN_AT, manifest_path=folder)


def submit(cloud: Cloud, pipeline: Pipeline, dataset: Dataset, attempt: int = 1) -> Job:
    return submit_job(cloud.clients, submission(cloud, pipeline, dataset, attempt))


def conclude(cloud: Cloud, pipeline: Pipeline, dataset: Dataset, job: Job) -> tuple[Results, Model]:
    """Wait for the end of the job, read the results and register the model."""
    job = wait_until(cloud, job.name, "completed", poll_seconds=POLL_SECONDS)
    results = read_results(
        cloud.clients,
        ReadResults(
            pipeline=pipeline.name,
            run=job.name,
            container=job.results_container,
            completed=True,
            metrics=["accuracy", "champion_accuracy"],
        ),
    )
    model = register_model(
        cloud.clients,
        RegisterModel(
            run=job.name,
            pipeline=pipeline,
            dataset=dataset,
            results=results.record,
            champion=job.champion,
        ),
    )
    return results, model


def log_of(cloud: Cloud, job: str) -> str:
    container = cloud.clients.workspace_blobs.get_container_client("azureml")
    path = f"ExperimentRun/dcid.{job}/user_logs/std_log.txt"
    return container.download_blob(path).readall().decode()


def files_of(cloud: Cloud, model: Model) -> dict[str, BlobClient]:
    """The files in a registered model's folder, by name."""
    prefix = model.path.partition("/paths/")[2] + "/"
    container = cloud.clients.workspace_blobs.get_container_client("azureml-blobstore")
    return {
        path.removeprefix(prefix): container.get_blob_client(path)
        for path in container.list_blob_names(name_starts_with=prefix)
    }


def test_steps_are_judged_and_packing_is_reused(cloud: Cloud) -> None:
    pipeline = deploy(cloud, "digits-steps", {})
    first = land(cloud, pipeline, 40)
    job = submit(cloud, pipeline, first)
    results, model = conclude(cloud, pipeline, first, job)
    assert results.metrics["accuracy"] > 0.7
    assert [*files_of(cloud, model)] == ["model.safetensors"]
    assert log_of(cloud, f"{job.name}_pack") == "40 images, 40 of them new\n"

    second = land(cloud, pipeline, 48)
    again = submit(cloud, pipeline, first, 2)
    grown = submit(cloud, pipeline, second)
    results, _ = conclude(cloud, pipeline, first, again)
    packed = cloud.clients.ml.jobs.get(f"{again.name}_pack").properties
    assert packed["azureml.reusedrunid"] == f"{job.name}_pack"
    assert again.champion == "1"
    assert results.metrics["champion_accuracy"] == results.metrics["accuracy"]
    conclude(cloud, pipeline, second, grown)
    assert log_of(cloud, f"{grown.name}_pack") == "48 images, 8 of them new\n"


def test_a_job_of_plain_torch_on_two_ranks_is_registered_and_compared(cloud: Cloud) -> None:
    pipeline = deploy(
        cloud, "templates/plain-torch", {"python train.py": "OMP_NUM_THREADS=1 python train.py"}
    )
    dataset = land(cloud, pipeline, 40)
    results, model = conclude(cloud, pipeline, dataset, submit(cloud, pipeline, dataset))
    assert results.metrics["accuracy"] > 0.7
    assert [*files_of(cloud, model)] == ["model.pt"]
    again = submit(cloud, pipeline, dataset, 2)  # resumes after the last epoch
    results, _ = conclude(cloud, pipeline, dataset, again)
    assert results.metrics["champion_accuracy"] == results.metrics["accuracy"]


def test_the_best_trial_of_a_sweep_with_a_module_beside_the_trainers_is_registered(
    cloud: Cloud, tmp_path: Path
) -> None:
    """`mine.trees` of docs/trainers.md, word for word, in the folder that the page names."""
    section = (TRAINERS.parent / "docs" / "trainers.md").read_text().split("## Your own model")[1]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    shutil.copytree(TRAINERS, tmp_path / "trainers")
    (tmp_path / "trainers" / "mine").mkdir()
    (tmp_path / "trainers" / "mine" / "trees.py").write_text(example[1])
    changes = {
        "code: ../../trainers": f"code: {tmp_path / 'trainers'}",
        "python -m trainers.train": f"{LOW_SCORE} OMP_NUM_THREADS=1 python -m trainers.train"
        " --model mine.trees:network --dataset mine.trees:dataset",
        "--epochs 20": "--epochs 4",
        "--batch-size 64": "--batch-size 8",
        "[0.2, 0.1, 0.001]": "[0.1, 0.001]",
    }
    pipeline = deploy(cloud, "digits-sweep", changes)
    dataset = land(cloud, pipeline, 40)
    job = submit(cloud, pipeline, dataset)
    results, model = conclude(cloud, pipeline, dataset, job)
    assert set(results.metrics) == {"accuracy"}
    assert f"/azureml/{job.name}_0/" in model.path, "the first learning rate is the better one"
    about = json.loads(files_of(cloud, model)["model.json"].download_blob().readall())
    assert about["architecture"] == "mine.trees:network"
    metrics = about["metrics"]
    assert metrics["train_samples"] == 2 * (40 - metrics["held_out_samples"]), "mirrored, too"
    assert metrics["accuracy"] > 0.5, "a guess is right for one in five"
