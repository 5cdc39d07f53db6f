"""A trained model in an endpoint's server, which is a separate process."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.trainers.conftest import Job
from tests.unit.trainers import drawn_boxes
from trainers import score

REPOSITORY = Path(__file__).parents[3]

# As azureml-inference-server-http does it: the entry script is loaded by its path, `init` is called
# once, `run` for each request with the body.
SERVER = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("entry_module", sys.argv[1])
entry = importlib.util.module_from_spec(spec)
spec.loader.exec_module(entry)
entry.init()
for line in sys.stdin:
    print(json.dumps(entry.run(line)))
print(json.dumps(entry.run(open(sys.argv[2], "rb").read())))
"""


@pytest.fixture(scope="module")
def images(digits: Path) -> list[Path]:
    return sorted(digits.glob("*/*.png"))[::30]


@pytest.fixture(scope="module")
def trained(
    digits: Path, manifest: Path, fork: Any, tmp_path_factory: pytest.TempPathFactory
) -> Job:
    """The outputs of one rank."""
    folder = tmp_path_factory.mktemp("served")
    job = Job(data=digits, manifest=manifest, folder=folder)
    fork(job.arguments()).ended(0)
    return job


@pytest.fixture
def model(trained: Job, tmp_path: Path) -> Path:
    """The model folder is below AZUREML_MODEL_DIR, where Azure ML mounts a registered model."""
    folder = tmp_path / "models" / "digits" / "1"
    shutil.copytree(trained.results / "model", folder / "model")
    return folder


def as_base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_the_endpoints_server_gets_labels_and_typed_errors(
    model: Path, images: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(REPOSITORY / "trainers", tmp_path / "app")
    requests: list[Any] = [
        {"images": [as_base64(image) for image in images]},
        {"images": ["bm8gaW1hZ2U="]},
        ["not", "an", "object"],
    ]
    entry = tmp_path / "app" / "trainers" / "score.py"
    ended = subprocess.run(
        [sys.executable, "-c", SERVER, entry, images[0]],
        input="".join(json.dumps(request) + "\n" for request in requests),
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "OMP_NUM_THREADS": "1",
            "AZUREML_MODEL_DIR": str(model),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    scored, refused, malformed, single = (json.loads(line) for line in lines)
    labels = [prediction["label"] for prediction in scored["predictions"]]
    right = sum(label == image.parent.name for label, image in zip(labels, images, strict=True))
    assert right >= 0.7 * len(images)
    assert refused["error"]["type"] == malformed["error"]["type"] == "RequestInvalid"
    assert refused["error"]["message"].startswith("image 0: not an image")
    assert single["predictions"][0]["label"] == labels[0]


def test_the_endpoint_tells_what_a_detector_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_boxes.save_finder(tmp_path / "model", *drawn_boxes.COLOURS)
    monkeypatch.setenv("AZUREML_MODEL_DIR", str(tmp_path / "model"))
    monkeypatch.setenv("LANDFALL_ARCHITECTURE", drawn_boxes.ARCHITECTURE)
    image = drawn_boxes.image_with({"green": (2, 3, 7, 9)})
    score.init()
    request = {"images": [base64.b64encode(image).decode()], "score_threshold": 0.75}
    scored = score.run(json.dumps(request))
    assert scored == score.run(image)
    [prediction] = scored["predictions"]
    [found] = prediction["detections"]
    assert (prediction["width"], prediction["height"]) == (32, 16)
    assert (found["label"], found["score"], found["box"]) == ("green", 1, [2, 3, 7, 9])
    assert found["mask"]["size"] == [16, 32]


def test_the_description_names_code_data_and_versions(trained: Job) -> None:
    about = json.loads((trained.results / "model" / "model.json").read_bytes())
    assert len(about["code_version"]) == 64
    assert {"python", "torch", "torchvision", "numpy", "pillow", "safetensors"} == set(
        about["versions"]
    )
    assert about["metrics"] == trained.result("metrics")
    assert about["dataset_version"] == trained.result("report")["dataset_version"]
    assert about["seed"] == 0
