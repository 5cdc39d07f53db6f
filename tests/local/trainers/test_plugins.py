from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

MODEL = "tests.local.trainers.own_example:Perceptron"
DATASET = "tests.local.trainers.own_example:stripes"


def test_an_own_model_learns_an_own_dataset_and_is_scored_alone(train: Any) -> None:
    done = train("--model", MODEL, "--dataset", DATASET, "--epochs", "12", "--shift-pixels", "0")
    metrics = done.result("metrics")
    assert metrics["accuracy"] == 1
    assert (metrics["classes"], metrics["train_samples"], metrics["held_out_samples"]) == (
        8,
        128,
        32,
    )

    model = done.folder / "results" / "model"
    command = [sys.executable, "-m", "trainers.evaluate", "--model", model, "--dataset", DATASET]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "name it to have it imported" in refused.stderr
    scored = subprocess.run(
        [*command, "--architecture", MODEL], check=True, capture_output=True, text=True
    )
    assert json.loads(scored.stdout)["accuracy"] == 1


@pytest.mark.parametrize("model", ["resnet18", "resnet18-batchnorm"])
def test_large_architectures_learn_synthetic_images(model: str, train: Any) -> None:
    of_images = ("--image-size", "16", "--image-mode", "rgb", "--shift-pixels", "0")
    one_batch = ("--synthetic-images", "16", "--epochs", "6", "--learning-rate", "0.01")
    done = train("--model", model, *of_images, *one_batch)
    assert done.losses[6] < 0.7 * done.losses[1]
    assert done.result("model/model")["architecture"] == model


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("--model", "no_such_package:factory", "cannot be imported"),
        ("--model", "tests.local.trainers.own_example:Missing", "cannot be imported"),
        ("--model", "tests.local.trainers.own_example:__doc__", "cannot be called"),
        ("--model", "tests.local.trainers.own_example:not_a_module", "not a torch.nn.Module"),
        ("--dataset", "builtins:repr", "not a trainers Dataset"),
    ],
)
def test_a_path_that_leads_nowhere_is_told(option: str, path: str, said: str, refuse: Any) -> None:
    failed = refuse(option, path)
    error = failed.result("error")
    assert error["type"] == "LaunchInvalid"
    assert path in error["message"]
    assert said in error["message"]


def test_files_need_a_folder_and_a_manifest(refuse: Any) -> None:
    failed = refuse("--dataset", "folder")
    assert "--data and --manifest" in failed.result("error")["message"]
