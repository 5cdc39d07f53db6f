"""Recipes are options with their sources; what they name is there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.unit.trainers.given_settings import settings_of
from trainers.augmentations import (
    mixup_or_cutmix,
    rand_augment_and_mix,
    trivial_augment_and_mix,
)
from trainers.optimizers import learning_rate
from trainers.plugins import Augmentation
from trainers.settings import check_options

REPOSITORY = Path(__file__).parents[3]
RECIPES = REPOSITORY / "trainers" / "trainers" / "recipes"


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.yml")), ids=lambda file: file.stem)
def test_the_options_are_ones_of_the_trainer_and_each_names_its_source(file: Path) -> None:
    settings = settings_of("--recipe", str(file))
    check_options(settings, ranks=1)
    document = yaml.safe_load(file.read_text())
    for name, value in document["options"].items():
        assert str(getattr(settings, name.replace("-", "_"))) != str(None), (name, value)
    text = file.read_text().split("options:\n")[1].split("\n\n")[0]
    words = re.findall(r"^  [\w-]+: \S+ +# ([\w-]+)", text, re.MULTILINE)
    assert len(words) == len(document["options"])
    assert set(words) <= document["sources"].keys() | {"chosen"}


def test_the_command_line_has_precedence_over_the_recipe() -> None:
    recipe = str(RECIPES / "resnet50-imagenet.yml")
    settings = settings_of("--batch-size", "2048", "--recipe", recipe, "--warm-up-epochs", "5")
    assert (settings.model, settings.epochs) == ("torchvision/resnet50", 90)
    assert settings.peak_learning_rate == pytest.approx(0.8), "scaled from a batch of 256"
    assert settings.warm_up_epochs == 5


def test_the_90_epochs_begin_at_the_full_rate_and_end_at_a_hundredth() -> None:
    settings = settings_of("--recipe", str(RECIPES / "resnet50-imagenet.yml"))
    rates = [learning_rate(settings, epoch * 5004, 5004) for epoch in (0, 29, 30, 60, 89)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001, 0.001])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("options: {epoch: 3}", "options.epoch"),  # argparse would take it for --epochs
        ("options: {recipe: other.yml}", "options.recipe"),
        ("options: {epochs: 3}\nexpected: 1", "expected"),
        ("epochs: 3", "no mapping `options`"),
        ("options: [", "cannot be read"),
        ("options: {epochs: none}", "--epochs"),
        ("options: {keep-gathered: false}", "--no-keep-gathered"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(
    content: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recipe.yml"
    file.write_text(content)
    with pytest.raises(SystemExit, match="2"):
        settings_of("--recipe", str(file))
    assert named in capsys.readouterr().err.split("error: ")[1]


def test_flags_of_a_recipe_are_set(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yml"
    file.write_text("options: {deterministic: true, channels-last: false}")
    settings = settings_of("--recipe", str(file))
    assert (settings.deterministic, settings.channels_last) == (True, False)


def test_the_recipe_of_the_digits_is_their_pipeline() -> None:
    """The job adds what is no matter of the recipe."""
    job = yaml.safe_load((REPOSITORY / "pipelines" / "digits" / "job.yml").read_text())
    options = re.sub(r"\$\{\{\w+\.seed\}\}", "0", job["command"]).split("trainers.train", 1)[1]
    of_job: Any = settings_of(*re.sub(r"\$\{\{\w+\.(\w+)\}\}", r"\1", options).split())
    of_recipe = settings_of("--recipe", str(RECIPES / "digits.yml"))
    assert of_recipe.fingerprint() == of_job.fingerprint()
    assert dataclasses.replace(of_job, recipe=None, seed=1).fingerprint() != of_job.fingerprint()


def test_a_batch_is_mixed_and_so_are_its_labels() -> None:
    torch.manual_seed(0)
    images = torch.arange(4.0)[:, None, None, None].expand(4, 3, 8, 8)
    mix = mixup_or_cutmix(num_classes=4)
    kinds: set[bool] = set()
    for _ in range(10):
        mixed, labels = mix(images, torch.arange(4))
        assert labels.shape == (4, 4)
        assert labels.sum(dim=1) == pytest.approx(torch.ones(4))
        kinds.add(bool((mixed == mixed.round()).all()))  # CutMix leaves whole pixels
    assert kinds == {True, False}


@pytest.mark.parametrize("factory", [trivial_augment_and_mix, rand_augment_and_mix])
def test_each_image_has_draws_of_its_own_which_follow_from_the_seed(
    factory: Callable[..., Augmentation],
) -> None:
    images = torch.rand(1, 3, 16, 16).repeat(8, 1, 1, 1) * 2 - 1
    torch.manual_seed(5)
    changed, labels = factory(num_classes=4)(images, torch.arange(8) % 4)
    torch.manual_seed(5)
    again, _ = factory(num_classes=4)(images, torch.arange(8) % 4)
    assert torch.equal(again, changed)
    assert changed.shape == images.shape
    assert len({image.numpy().tobytes() for image in changed}) > 4
    assert -1 <= changed.min() < changed.max() <= 1
    assert labels.sum(dim=1).tolist() == pytest.approx([1] * 8)
