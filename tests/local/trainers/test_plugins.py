from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from trainers import evaluate
from trainers.plugins import build_network

MODEL = "tests.local.trainers.own_example:Perceptron"
DATASET = "tests.local.trainers.own_example:stripes"


def test_an_own_model_learns_an_own_dataset_and_is_scored_alone(train: Any, capsys: Any) -> None:
    done = train("--model", MODEL, "--dataset", DATASET, "--epochs", "12", "--shift-pixels", "0")
    metrics = done.result("metrics")
    assert metrics["accuracy"] == 1
    assert (metrics["classes"], metrics["train_samples"], metrics["held_out_samples"]) == (
        8,
        128,
        32,
    )

    arguments = ["--model", str(done.folder / "results" / "model"), "--dataset", DATASET]
    assert evaluate.main(arguments) == 1
    assert "name it to have it imported" in capsys.readouterr().err
    assert evaluate.main([*arguments, "--architecture", MODEL]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1


def test_a_large_architecture_learns_synthetic_images(train: Any) -> None:
    of_images = ("--image-size", "16", "--image-mode", "rgb", "--shift-pixels", "0")
    one_batch = ("--synthetic-images", "16", "--epochs", "6", "--learning-rate", "0.01")
    done = train("--model", "torchvision/resnet18", *of_images, *one_batch, ranks=1)
    assert done.losses[6] < 0.7 * done.losses[1]
    assert done.result("model/model")["architecture"] == "torchvision/resnet18"


def test_a_transformer_of_timm_is_built_for_the_images_and_sharded_by_its_blocks(
    train: Any,
) -> None:
    narrow = ("--model", "timm/test_vit2", "--image-size", "32", "--image-mode", "rgb")
    done = train(*narrow, "--parallel", "fsdp", "--checkpoint-activations", "full", "--epochs", "1")
    assert done.result("model/model")["architecture"] == "timm/test_vit2"


def test_a_network_of_timm_learns_and_begins_with_published_weights(
    train: Any, tmp_path: Path
) -> None:
    """Published weights have 1,000 classes and color images, so the last layer differs here."""
    published = build_network("timm/resnet10t", channels=3, classes=1000, size=32)
    file = tmp_path / "weights" / "model.safetensors"
    file.parent.mkdir()
    save_file(published.state_dict(), file)
    of_images = ("--image-size", "32", "--image-mode", "rgb", "--shift-pixels", "0")
    one_batch = ("--synthetic-images", "16", "--epochs", "6", "--learning-rate", "0.01")
    done = train(
        "--model", "timm/resnet10t", "--pretrained", str(file.parent), *of_images, *one_batch
    )
    count = len(published.state_dict())
    assert f"initial weights: {count - 2} of the network's {count} tensors" in done.seen
    assert done.losses[6] < 0.7 * done.losses[1]


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("--model", "no_such_package:factory", "cannot be imported"),
        ("--model", "tests.local.trainers.own_example:Missing", "cannot be imported"),
        ("--model", "tests.local.trainers.own_example:__doc__", "cannot be called"),
        ("--model", "tests.local.trainers.own_example:not_a_module", "which is not a Module"),
        ("--model", "timm/no_such_network", "timm.list_models"),
        ("--model", "torchvision/resnet18", "give --image-mode rgb"),
        ("--dataset", "builtins:repr", "which is not a Dataset"),
        ("--augment", "builtins:dict", "which is not a Callable"),
    ],
)
def test_a_path_that_leads_nowhere_is_told(option: str, path: str, said: str, refuse: Any) -> None:
    failed = refuse(option, path)
    error = failed.result("error")
    assert error["type"] == "LaunchInvalid"
    assert path in error["message"]
    assert said in error["message"]


@pytest.mark.parametrize(
    ("dataset", "said"),
    [("colourless", "images of shape (1, 1, 8, 8)"), ("unlabelled", "the label -1")],
)
def test_an_own_dataset_of_other_images_is_refused(dataset: str, said: str, refuse: Any) -> None:
    own = f"tests.local.trainers.own_example:{dataset}"
    error = refuse("--dataset", own, "--image-mode", "rgb", code=65).result("error")
    assert error["type"] == "DataRejected"
    assert said in error["message"]
