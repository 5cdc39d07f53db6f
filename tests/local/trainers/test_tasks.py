"""The loop, checkpoints and parallelism with a task that is not about images."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.trainers.small_datasets import lay_down, write_manifest
from trainers import evaluate

EXAMPLE = "tests.local.trainers.own_text"
NAMES = (b"tokyo", b"lima", b"oslo", b"cairo", b"quito")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments that name 40 files of sentences."""
    folder = tmp_path_factory.mktemp("text")
    files = {
        f"{number:02d}.txt": b"%d. " % number
        + b" ".join(
            b"from %s to %s." % (NAMES[(number + step) % 5], NAMES[(number * step) % 5])
            for step in range(20)
        )
        for number in range(40)
    }
    manifest = write_manifest(folder / "manifest.jsonl", lay_down(folder / "data", files))
    return ["--data", str(folder / "data"), "--manifest", str(manifest)]


def test_text_is_learned_alike_on_one_rank_and_on_shards(
    text: list[str], train: Any, capsys: Any
) -> None:
    options = (
        *("--dataset", f"{EXAMPLE}:pieces", "--model", f"{EXAMPLE}:Trigrams", *text),
        *("--optimizer", "adamw", "--learning-rate", "0.05", "--epochs", "2"),
    )
    done = train(*options, "--parallel", "fsdp")
    metrics = done.result("metrics")
    assert metrics["accuracy"] > 0.6
    assert metrics["perplexity"] < 4
    alone = train(*options, ranks=1)
    assert done.losses == pytest.approx(alone.losses, rel=1e-3)
    arguments = [
        *("--architecture", f"{EXAMPLE}:Trigrams", "--dataset", f"{EXAMPLE}:pieces", *text),
        *("--model", str(alone.folder / "results" / "model")),
    ]
    assert evaluate.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    of_run = alone.result("metrics")
    assert {name: found[name] for name in ("accuracy", "perplexity", "loss")} == {
        name: pytest.approx(of_run[name]) for name in ("accuracy", "perplexity", "loss")
    }


def test_an_option_for_classes_is_refused(text: list[str], refuse: Any) -> None:
    own = ("--dataset", f"{EXAMPLE}:pieces", "--model", f"{EXAMPLE}:Trigrams", *text)
    error = refuse(*own, "--label-smoothing", "0.1").result("error")
    assert (error["type"], "NextByte" in error["message"]) == ("LaunchInvalid", True)
