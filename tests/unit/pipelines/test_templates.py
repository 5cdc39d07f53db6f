"""The templates that a user copies: their programs keep the contract, their files are valid."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image

from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.training.job_outputs import parse_file
from orchestrations.contracts.checked import ChecksFile
from orchestrations.contracts.comparison import Comparison, Counts
from tests.unit.trainers.small_datasets import freeze, image_file
from trainers.settings import parse_settings

REPOSITORY = Path(__file__).parents[3]
TEMPLATES = REPOSITORY / "pipelines" / "templates"
CHECKED = REPOSITORY / "pipelines" / "digits-checked"
NAMES = ("minimal", "plain-torch", "tabular")
OF_RECIPES = ("coco", "imagenet")


def program(path: Path) -> Any:
    """A program as a module: in this process, where scikit-learn is imported already."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def exit_code(
    template: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    champion: str = "none",
    job_file: Path | None = None,
) -> int:
    """Of the job's own command, on `folder`/data: in this process, where its imports are loaded."""
    job = yaml.safe_load((job_file or TEMPLATES / template / "job.yml").read_text())
    filled = re.sub(r"\$\{\{(in|out)puts\.(\w+)\}\}", r"{\2}", job["command"]).format(
        manifest=folder / "manifest",
        new_data=folder / "manifest",
        data=folder / "data",
        champion=champion,
        results=folder / "results",
        checkpoints=folder,
    )
    (folder / "results").mkdir(exist_ok=True)  # as Azure ML mounts it
    interpreter, *arguments = filled.split()
    assert interpreter == "python"
    monkeypatch.chdir(TEMPLATES / template)
    monkeypatch.setattr(sys, "argv", arguments)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def document(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "results" / f"{name}.json").read_bytes())


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    make_dataset = program(REPOSITORY / "pipelines" / "digits" / "make_dataset.py").make_dataset
    make_dataset(folder / "data", limit=500)
    freeze(folder / "data", folder / "manifest")
    return folder


@pytest.fixture(scope="module")
def wines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's wines, in two files, with names of classes."""
    folder = tmp_path_factory.mktemp("wines")
    (folder / "data").mkdir()
    from sklearn.datasets import load_wine  # noqa: PLC0415 - over a second, for one test

    bunch: Any = load_wine()
    rows = list(zip(bunch.data.tolist(), bunch.target_names[bunch.target].tolist(), strict=True))
    for number in (0, 1):
        with (folder / "data" / f"{number}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow([*bunch.feature_names, "label"])
            writer.writerows([*numbers, label] for numbers, label in rows[number::2])
    freeze(folder / "data", folder / "manifest")
    return folder


@pytest.fixture
def copied(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def copied(name: str) -> Path:
        shutil.copytree(request.getfixturevalue(name), tmp_path, dirs_exist_ok=True)
        return tmp_path

    return copied


def test_the_first_template_is_short_and_uses_nothing_of_ours() -> None:
    source = (TEMPLATES / "minimal" / "train.py").read_text()
    assert len(source.splitlines()) <= 100
    source = (TEMPLATES / "plain-torch" / "train.py").read_text().split('"""', 2)[2]
    assert len([line for line in source.splitlines() if line]) <= 80
    for template in NAMES:
        assert not re.search(
            r"import (trainers|handlers)|from (trainers|handlers)",
            (TEMPLATES / template / "train.py").read_text(),
        )


def test_templates_are_valid_pipelines_and_rest_until_they_are_copied(tmp_path: Path) -> None:
    (tmp_path / "trainers").symlink_to(REPOSITORY / "trainers")
    for template in (*NAMES, *OF_RECIPES):
        shutil.copytree(TEMPLATES / template, tmp_path / "pipelines" / template)
    copied = load_pipelines(tmp_path / "pipelines", records_container="landfall")
    assert set(copied) == {*NAMES, *OF_RECIPES}
    assert copied["imagenet"].source.takes("n01440764/n01440764_10026.JPEG")
    assert copied["coco"].source.takes("train2017/000000000009.jpg")
    shipped = load_pipelines(REPOSITORY / "pipelines", records_container="landfall")
    assert not {*NAMES, *OF_RECIPES} & set(shipped)


@pytest.mark.parametrize("template", OF_RECIPES)
def test_the_commands_with_a_recipe_are_ones_that_the_trainer_takes(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = yaml.safe_load((TEMPLATES / template / "job.yml").read_text())
    command = re.sub(r"\$\{\{\w+\.(\w+)\}\}", r"\1", job["command"])
    monkeypatch.chdir(REPOSITORY / "trainers")  # the job's working folder
    settings = parse_settings("", command.split("-m trainers.train ")[1].split())
    assert settings.dataset == {"coco": "coco", "imagenet": "shards"}[template]
    assert settings.epochs >= 26


@pytest.mark.parametrize(
    ("template", "data", "floor"),
    [("minimal", "digits", 0.8), ("plain-torch", "digits", 0.9), ("tabular", "wines", 0.9)],
)
def test_a_model_is_trained_and_compared_with_its_champion(
    template: str, data: str, floor: float, copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(data)
    assert exit_code(template, folder, monkeypatch) == 0
    metrics = document(folder, "metrics")
    assert metrics["accuracy"] >= floor
    assert "champion_accuracy" not in metrics
    champion = (folder / "results" / "model").rename(folder / "champion")
    assert exit_code(template, folder, monkeypatch, champion=str(champion)) == 0
    assert document(folder, "metrics")["champion_accuracy"] == metrics["accuracy"]
    if template == "plain-torch":
        return
    written = (folder / "results" / "comparison.json").read_bytes()
    comparison = parse_file(Comparison, written, "here")
    assert isinstance(comparison.whole, Counts)
    assert comparison.whole.both_right / comparison.whole.samples == metrics["accuracy"]
    groups = {name.partition(":")[0] for name in comparison.slices}
    assert groups == {"label", "folder"} if template == "tabular" else {"label"}


def test_tables_are_sliced_by_a_column_that_is_not_learned_from(monkeypatch: Any) -> None:
    tabular = program(TEMPLATES / "tabular" / "train.py")
    monkeypatch.setattr(tabular, "SLICE_BY", "region")
    columns, rows = tabular._rows(b"width,region,label\n1,north,cat\n")
    assert (columns, rows[0][0], rows[0][3]) == (["width"], [1.0], ["label:cat", "region:north"])
    with pytest.raises(ValueError, match="no column 'region'"):
        tabular._rows(b"width,label\n1,cat\n")


@pytest.mark.parametrize(("template", "data"), [("minimal", "digits"), ("tabular", "wines")])
def test_a_file_that_changed_since_the_manifest_ends_the_run(
    template: str, data: str, copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(data)
    changed = min(path for path in (folder / "data").rglob("*.*"))
    changed.write_bytes(changed.read_bytes() + b"more")
    assert exit_code(template, folder, monkeypatch) == 65
    error = document(folder, "error")
    assert error["type"] == "DataChanged"
    assert [file["path"] for file in error["files"]] == [
        changed.relative_to(folder / "data").as_posix()
    ]
    assert not (folder / "results" / "metrics.json").exists()


@pytest.mark.parametrize(
    ("template", "files"),
    [
        ("minimal", {"a/0.png": b"no image", "b/0.png": image_file(1)}),
        ("minimal", {"a/0.png": image_file(1), "a/1.png": image_file(2)}),
        ("plain-torch", {"a/0.png": b"no image", "b/0.png": image_file(1)}),
        ("plain-torch", {"a/0.png": image_file(1), "a/1.png": image_file(2)}),
        ("tabular", {"0.csv": b"width,label\nwide,cat\n"}),
        ("tabular", {"0.csv": b"width,height\n1,2\n"}),
        ("tabular", {"0.csv": b"width,label\n1\n"}),
        ("tabular", {"0.csv": b"width,label\n1,cat\n"}),
    ],
    ids=[
        "no image",
        "one label",
        "torch: no image",
        "torch: one label",
        "no number",
        "no label",
        "a value too few",
        "one row",
    ],
)
def test_bad_data_is_rejected(
    template: str, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    freeze(tmp_path / "data", tmp_path / "manifest")
    assert exit_code(template, tmp_path, monkeypatch) == 65
    assert document(tmp_path, "error")["type"] == "DataRejected"


def test_plain_torch_ends_in_the_same_bits_after_a_crash(
    copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("digits")
    assert exit_code("plain-torch", folder, monkeypatch) == 0
    undisturbed = torch.load(folder / "results" / "model" / "model.pt")["weights"]
    (folder / "checkpoint.pt").unlink()
    save, saved = torch.save, []

    def die_at_the_third(value: Any, file: Path) -> None:
        save(value, file)
        saved.append(file)
        if len(saved) == 3:  # before the file has its name
            raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(torch, "save", die_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            exit_code("plain-torch", folder, monkeypatch)
    assert torch.load(folder / "checkpoint.pt")[2] == 2
    assert exit_code("plain-torch", folder, monkeypatch) == 0
    resumed = torch.load(folder / "results" / "model" / "model.pt")["weights"]
    assert all(torch.equal(resumed[name], undisturbed[name]) for name in undisturbed)


def test_the_environments_have_the_versions_that_are_tested() -> None:
    constraints = (REPOSITORY / "constraints.txt").read_text().splitlines()
    for template in (*NAMES, *OF_RECIPES):
        conda = yaml.safe_load((TEMPLATES / template / "environment" / "conda.yml").read_text())
        [pins] = [each["pip"] for each in conda["dependencies"] if isinstance(each, dict)]
        assert set(pins) <= {line.split(" ;")[0] for line in constraints}


def test_the_images_are_checked_and_the_report_names_the_bad_ones(
    copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("digits")
    job = CHECKED / "checks" / "job.yml"
    assert exit_code("checks", folder, monkeypatch, job_file=job) == 0
    assert document(folder, "checks")["passed"]
    Image.new("L", (8, 8)).save(folder / "data" / "0" / "blank.png")
    (folder / "data" / "0" / "broken.png").write_text("no image")
    freeze(folder / "data", folder / "manifest")
    assert exit_code("checks", folder, monkeypatch, job_file=job) == 0
    verdict = parse_file(ChecksFile, (folder / "results" / "checks.json").read_bytes(), "here")
    assert not verdict.passed
    failed = {rule.name: rule.message for rule in verdict.checks if not rule.passed}
    assert failed == {
        "broken": "1 of 502 images: 0/broken.png",
        "blank": "1 of 502 images: 0/blank.png",
    }
    assert "0/broken.png" in (folder / "results" / str(verdict.report)).read_text()


def test_rows_that_break_the_schema_are_counted(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("pandera", reason="only the template's job needs it")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.csv").write_text("a,label\n1,x\n2,\n1,x\n")
    freeze(tmp_path / "data", tmp_path / "manifest")
    job = TEMPLATES / "checks" / "table.yml"
    assert exit_code("checks", tmp_path, monkeypatch, job_file=job) == 0
    verdict = parse_file(ChecksFile, (tmp_path / "results" / "checks.json").read_bytes(), "here")
    assert [(rule.name, rule.value) for rule in verdict.checks] == [
        ("label: not_nullable", 1),
        ("the row: no_duplicate_rows", 1),
    ]


def test_a_champion_is_scored_on_all_new_files(
    copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("digits")
    assert exit_code("minimal", folder, monkeypatch) == 0
    champion = (folder / "results" / "model").rename(folder / "champion")
    job = CHECKED / "champion" / "job.yml"
    assert exit_code("minimal", folder, monkeypatch, champion=str(champion), job_file=job) == 0
    metrics = document(folder, "metrics")
    assert metrics.keys() == {"accuracy"}
    assert metrics["accuracy"] > 0.8
