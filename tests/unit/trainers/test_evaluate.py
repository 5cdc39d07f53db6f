from __future__ import annotations

import dataclasses
import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from handlers.training.job_outputs import parse_metrics
from orchestrations.contracts.comparison import Comparison, Counts
from tests.unit.trainers import drawn_boxes
from tests.unit.trainers.given_settings import settings_of
from tests.unit.trainers.small_datasets import good_files, lay_down, write_manifest
from trainers import evaluate as program
from trainers.data.dataset import Dataset
from trainers.data.image_file import ImageFormat
from trainers.data.images import Samples
from trainers.evaluate import evaluate, evaluate_champion
from trainers.parallelism.launch import Launch
from trainers.parallelism.mesh import RankCoordinates
from trainers.parallelism.world import World
from trainers.reports.comparison import compare
from trainers.serving.model_folder import Model, new_model, save_model
from trainers.tasks.classification import confusions
from trainers.tasks.task import Evaluation, HeldOut


class Oracle(nn.Module):
    """Predicts the class whose number is the image's only pixel."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        told = torch.round((images[:, 0, 0, 0] + 1) * 127.5).long()
        return nn.functional.one_hot(told, self.classes).float() * 100


def model_of(*classes: str) -> Model:
    return Model(
        network=Oracle(len(classes)),
        architecture="oracle",
        classes=classes,
        image_format=ImageFormat(size=1, mode="grey"),
    )


def images_of(told: list[int], labels: list[int]) -> Samples:
    pixels = torch.tensor(told, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    return Samples(inputs=pixels, labels=torch.tensor(labels))


@pytest.fixture
def world() -> World:
    return World.join(Launch(), timeout_seconds=1)


def scored(model: Model, images: Samples, classes: list[str], world: World) -> Evaluation:
    dataset = Dataset(
        version="1",
        classes=tuple(classes),
        train=images,
        held_out=images,
        held_out_as=lambda _: images,
        fingerprint="1",
    )
    return evaluate(model, dataset, world)


def test_accuracy_loss_and_confusion(world: World) -> None:
    images = images_of(told=[0, 1, 1, 0], labels=[0, 1, 1, 1])
    evaluation = scored(model_of("a", "b"), images, ["a", "b"], world)
    assert evaluation.headline == 0.75
    assert evaluation.loss == pytest.approx(100 / 4)
    assert evaluation.details["confusion"] == [[1, 0], [1, 2]]


def test_the_next_pass_is_read_while_the_network_works_on_one(world: World) -> None:
    class Read:
        def __init__(self) -> None:
            self.second = threading.Event()

        def __len__(self) -> int:
            return 3

        def take(self, numbers: Tensor) -> Samples:
            if 1 in numbers:
                self.second.set()
            return Samples(inputs=numbers, labels=numbers)

    source = Read()
    held_out = HeldOut(source=source, world=world, coordinates=RankCoordinates())
    passes = held_out.passes(at_once=1)
    next(passes)
    assert source.second.wait(timeout=30)
    assert [samples.labels.tolist() for _, samples in passes] == [[1], [2]]


def test_the_report_lists_confusions_and_bounds_the_matrix() -> None:
    confusion = torch.zeros(3, 3, dtype=torch.int64)
    confusion[0, 0], confusion[1, 2], confusion[2, 1] = 5, 2, 7
    assert confusions(confusion, ["a", "b", "c"]) == {
        "confusion": [[5, 0, 0], [0, 0, 2], [0, 7, 0]],
        "most_confused": [
            {"true": "c", "predicted": "b", "images": 7},
            {"true": "b", "predicted": "c", "images": 2},
        ],
    }


def test_the_report_of_many_classes_is_small() -> None:
    names = [f"class-{number:05d}" for number in range(3000)]
    report = confusions(torch.ones(3000, 3000, dtype=torch.int64), names)
    assert report["confusion"] is None
    assert len(report["most_confused"]) == 100
    assert len(json.dumps(report, indent=2)) < 20_000


def test_models_are_compared_image_by_image(world: World) -> None:
    classes = ["a", "b\n", "unseen"]
    images = images_of(told=[0, 1, 1, 0], labels=[0, 1, 1, 1])
    model = scored(model_of("a", "b\n"), images, classes, world)
    champion = scored(model_of("b\n", "a"), images, classes, world)
    document = compare(model, champion, classes)
    comparison = Comparison.model_validate(document)
    assert isinstance(comparison.whole, Counts)
    assert comparison.whole.only_challenger == 3
    assert comparison.whole.only_champion == 1
    sizes = {name: part.samples for name, part in comparison.slices.items()}
    assert sizes == {"label:b ": 3, "label:a": 1, "label:unseen": 0}


def test_scores_are_compared_by_their_sums_and_many_labels_are_bounded() -> None:
    names = [f"{'very-' * 20}long-{number}" for number in range(700)]
    scores = torch.arange(700, dtype=torch.float64) / 700
    model = Evaluation(
        headline_name="score",
        scores={"score": scores.mean().item()},
        loss=0.0,
        sample_scores=scores,
        labels=torch.arange(700),
    )
    champion = dataclasses.replace(model, sample_scores=scores.flip(0))
    document = compare(model, champion, names)
    comparison = Comparison.model_validate(document)
    assert comparison.whole.samples == 700
    assert comparison.whole.difference == pytest.approx(0)
    assert len(comparison.slices) < 200
    assert len(json.dumps(document, indent=2)) < 64 * 1024
    assert compare(model, dataclasses.replace(champion, sample_scores=None), names) is None


def test_classes_are_matched_by_name_not_by_place(world: World) -> None:
    images = images_of(told=[0, 1], labels=[1, 0])
    evaluation = scored(model_of("b", "a"), images, ["a", "b"], world)
    assert evaluation.headline == 1
    assert evaluation.loss == pytest.approx(0)


def test_what_a_model_does_not_know_it_gets_wrong(world: World) -> None:
    images = images_of(told=[0, 1, 0, 0], labels=[0, 1, 2, 2])
    evaluation = scored(model_of("a", "b"), images, ["a", "b", "c"], world)
    assert evaluation.headline == 0.5
    assert evaluation.loss == math.inf


def test_a_class_that_the_data_lacks_is_wrong_too(world: World) -> None:
    images = images_of(told=[0, 2], labels=[0, 1])
    evaluation = scored(model_of("a", "b", "z"), images, ["a", "b"], world)
    assert evaluation.headline == 0.5
    assert evaluation.details["confusion"] == [[1, 0], [0, 0]]


@pytest.fixture
def annotated(tmp_path: Path) -> list[str]:
    return drawn_boxes.write_dataset(tmp_path)


def run(model: Path, data: list[str], capsys: Any, *, code: int = 0) -> Any:
    arguments = ["--model", str(model), "--architecture", drawn_boxes.ARCHITECTURE, *data]
    assert program.main(arguments) == code
    output, error = capsys.readouterr()
    return error if code else json.loads(output)


def test_a_detector_is_scored_on_held_out_images(
    annotated: list[str], tmp_path: Path, capsys: Any
) -> None:
    model = drawn_boxes.save_finder(tmp_path / "model", "red", "green")
    answer = run(model, [*annotated, "--output-dir", str(tmp_path)], capsys)
    metrics = parse_metrics((tmp_path / "metrics.json").read_bytes(), "here")
    assert metrics["average_precision"] == answer["average_precision"]
    assert 1 <= answer.pop("held_out_samples") < 20
    assert len(answer.pop("dataset_version")) == 16
    assert answer == {
        "average_precision": 1,
        **dict.fromkeys(["box_ap", "box_ap_50", "box_ap_75"], 1),
        **dict.fromkeys(["mask_ap", "mask_ap_50", "mask_ap_75"], 1),
        "loss": 3,  # the labels 1 and 2 of each image
        "quarantined_files": 0,
    }


def test_a_detectors_classes_are_matched_by_name(
    annotated: list[str], tmp_path: Path, capsys: Any
) -> None:
    """The finder's first class is what is red: here it has the name green."""
    swapped = run(drawn_boxes.save_finder(tmp_path / "a", "green", "red"), annotated, capsys)
    assert swapped["average_precision"] < 0.5
    assert swapped["loss"] == 3
    more = drawn_boxes.save_finder(tmp_path / "b", "red", "green", "blue")
    assert run(more, annotated, capsys)["average_precision"] == 1
    fewer = run(drawn_boxes.save_finder(tmp_path / "c", "red"), annotated, capsys)
    assert fewer["average_precision"] == 0.5
    assert fewer["loss"] is None


def test_a_champion_detector_is_read_at_its_own_size(tmp_path: Path, world: World) -> None:
    model = drawn_boxes.save_finder(tmp_path / "model", "red", "green", size=64)
    dataset = drawn_boxes.load_dataset(tmp_path, size=16)
    options = ("--champion", str(model), "--model", drawn_boxes.ARCHITECTURE)
    settings = settings_of(*options, "--image-size", "16", "--image-mode", "rgb")
    evaluation = evaluate_champion(settings, dataset, world)
    assert evaluation.headline_name == "average_precision"
    assert evaluation.headline == 1


def test_a_classifier_finds_no_boxes(annotated: list[str], tmp_path: Path, capsys: Any) -> None:
    model = new_model("resnet8", drawn_boxes.COLOURS, ImageFormat(size=32, mode="rgb"))
    save_model(tmp_path / "model", model, {})
    told = run(tmp_path / "model", annotated, capsys, code=1)
    assert told.startswith("LaunchInvalid: the model is a classifier, resnet8: annotated images")


def test_a_detector_is_no_classifier(tmp_path: Path, capsys: Any) -> None:
    manifest = write_manifest(
        tmp_path / "manifest.jsonl", lay_down(tmp_path / "data", good_files(30))
    )
    folder = ["--data", str(tmp_path / "data"), "--manifest", str(manifest)]
    model = drawn_boxes.save_finder(tmp_path / "model", "red", "green")
    told = run(model, folder, capsys, code=1)
    assert told.startswith(f"LaunchInvalid: the model is a detector, {drawn_boxes.ARCHITECTURE}")
