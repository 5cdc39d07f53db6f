from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.unit.trainers.given_settings import settings_of
from trainers.errors import LaunchInvalid
from trainers.settings import Settings, check_options


def test_the_champion_may_be_none() -> None:
    assert settings_of().champion is None
    assert settings_of("--champion", "none").champion is None
    assert settings_of("--champion", "models/1").champion == Path("models/1")
    assert settings_of("--initial-model", "none").initial_model is None
    assert settings_of("--initial-model", "models/1").initial_model == Path("models/1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--batch-size", "-1"],
        ["--learning-rate", "0"],
        ["--learning-rate", "nan"],
        ["--learning-rate", "inf"],
        ["--momentum", "1.5"],
        ["--optimizer", "adam"],
        ["--decay-epochs", "30,30"],
        ["--decay-epochs", "60,30"],
        ["--decay-epochs", "0"],
        ["--decay-epochs", "30,"],
        ["--max-bad-fraction", "nan"],
        ["--seed", "-1"],
        ["--image-mode", "cmyk"],
        ["--model", "resnet9"],
        ["--dataset", "tables"],
        ["--parallel", "pipeline"],
        ["--precision", "fp8"],
        ["--accumulate", "0"],
    ],
)
def test_a_wrong_value_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        settings_of(*arguments)
    error = capsys.readouterr().err
    assert arguments[0] in error
    assert arguments[1] in error


def test_the_fingerprint_is_of_what_decides_the_weights() -> None:
    settings = settings_of()
    same = {
        "dataset": "synthetic",
        "synthetic_images": 7,
        "synthetic_classes": 7,
        "data": Path("x"),
        "manifest": Path("x"),
        "annotations": "x",
        "output_dir": Path("x"),
        "checkpoint_dir": Path("x"),
        "champion": Path("x"),
        "initial_model": Path("x"),
        "pretrained": Path("x"),
        "dataset_version": "x",
        "decode_threads": 7,
        "parallel": "fsdp",
        "keep_gathered": True,
        "tensor_parallel": 7,
        "pipeline_parallel": 7,
        "pipeline_schedule": "gpipe",
        "microbatches": 7,
        "device": "cpu",
        "deterministic": True,
        "accumulate": 7,
        "compile": "eager",
        "channels_last": True,
        "checkpoint_activations": "full",
        "evaluate_every": 7,
        "checkpoint_every": 7,
        "log_every": 7,
        "max_bad_fraction": 0.5,
        "recipe": Path("r.yml"),
        "export": "onnx",
        "peer_timeout_seconds": 7.0,
        "step_timeout_seconds": 7.0,
        "checkpoint_timeout_seconds": 7.0,
        "compile_timeout_seconds": 7.0,
    }
    other = {
        "model": "resnet20",
        "image_size": 7,
        "image_mode": "grey",
        "epochs": 7,
        "batch_size": 7,
        "optimizer": "adamw",
        "learning_rate": 0.7,
        "scale_learning_rate_from": 7,
        "schedule": "constant",
        "decay_epochs": (7.0,),
        "warm_up_epochs": 7.0,
        "momentum": 0.7,
        "weight_decay": 0.7,
        "label_smoothing": 0.7,
        "augment": "mine:mixup",
        "clip_gradients": 0.7,
        "repeat_samples": 3,
        "average_weights": 0.7,
        "keep_best": True,
        "early_stop_evaluations": 7,
        "crop_area": 0.7,
        "shift_pixels": 7,
        "shuffle_window": 7,
        "precision": "bf16",
        "average_every": 7,
        "seed": 7,
    }
    assert {field.name for field in dataclasses.fields(Settings)} == set(same) | set(other)
    for name, value in same.items():
        changed = dataclasses.replace(settings, **{name: value})
        assert changed.fingerprint() == settings.fingerprint(), name
    for name, value in other.items():
        changed = dataclasses.replace(settings, **{name: value})
        assert changed.fingerprint() != settings.fingerprint(), name


def test_the_interval_of_evaluations_decides_only_where_they_choose_the_weights() -> None:
    choosing = settings_of("--keep-best", "--evaluate-every", "1")
    rarer = dataclasses.replace(choosing, evaluate_every=2)
    assert rarer.fingerprint() != choosing.fingerprint()


def test_the_rate_is_scaled_to_the_global_batch_if_told_so() -> None:
    given = ("--learning-rate", "0.1", "--batch-size", "512")
    assert settings_of(*given).peak_learning_rate == 0.1
    assert settings_of(*given, "--scale-learning-rate-from", "256").peak_learning_rate == 0.2


@pytest.mark.parametrize(
    ("options", "to_change"),
    [
        ("--warm-up-epochs 11 --epochs 10", "lower it"),
        ("--shift-pixels 8 --image-size 8", "0 for none"),
        ("--crop-area 0.5 --shift-pixels 1", "leave one out"),
        ("--keep-gathered", "add --parallel fsdp"),
        ("--keep-best", "add --evaluate-every"),
        ("--early-stop-evaluations 2", "add --evaluate-every"),
        ("--clip-gradients 1 --tensor-parallel 2", "leave it out"),
        ("--clip-gradients 1 --pipeline-parallel 2", "leave it out"),
        ("--average-every 4 --parallel fsdp", "--average-every is of --parallel ddp"),
        ("--average-every 4 --average-weights 0.9", "leave one out"),
        ("--average-every 4 --tensor-parallel 2", "--average-every is of --parallel ddp"),
        ("--decode-threads 4 --dataset coco", "--dataset shards"),
        ("--step-timeout-seconds 60 --peer-timeout-seconds 60", "lower the one"),
        ("--momentum 0.5 --optimizer adamw", "leave it out with adamw"),
        ("--decay-epochs 3", "give both or neither"),
        ("--decay-epochs 30 --schedule step --epochs 30", "lower it"),
        ("--compile magic", "inductor"),
        ("--microbatches 8", "add --pipeline-parallel"),
        ("--pipeline-schedule gpipe", "add --pipeline-parallel"),
        ("--checkpoint-activations selective --compile eager", "give full"),
    ],
)
def test_options_that_make_no_sense_together_say_what_to_change(
    options: str, to_change: str
) -> None:
    settings = settings_of(*options.split())
    with pytest.raises(LaunchInvalid, match=to_change) as caught:
        check_options(settings, ranks=2)
    assert options.split(maxsplit=1)[0] in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--warm-up-epochs 10 --epochs 10",
        "--shift-pixels 7 --image-size 8",
        "--keep-gathered --parallel fsdp --clip-gradients 1",
        "--keep-best --early-stop-evaluations 2 --evaluate-every 1",
        "--decode-threads 4 --dataset shards",
        "--decode-threads 4 --dataset mine.trees:dataset",
        "--step-timeout-seconds 59 --peer-timeout-seconds 60",
        "--optimizer mine.trees:optimizer --schedule constant --label-smoothing 0.1",
        "--schedule step --decay-epochs 30,60,80 --epochs 90 --momentum 0",
        "--microbatches 8 --pipeline-schedule gpipe --pipeline-parallel 2",
        "--compile aot_eager --checkpoint-activations full",
    ],
)
def test_others_do(options: str) -> None:
    check_options(settings_of(*options.split()), ranks=2)


def test_a_rank_alone_has_no_peers_to_lose_patience() -> None:
    options = ["--step-timeout-seconds", "600", "--peer-timeout-seconds", "60"]
    check_options(settings_of(*options), ranks=1)


def test_one_rank_alone_has_nobody_to_average_with() -> None:
    settings = settings_of("--average-every", "4")
    check_options(settings, ranks=2)
    with pytest.raises(LaunchInvalid, match="two or more ranks"):
        check_options(settings, ranks=1)


def test_when_ranks_meet_decides_which_checkpoints_are_resumed() -> None:
    plain, later = settings_of(), settings_of("--checkpoint-every", "7")
    assert plain.fingerprint() == later.fingerprint()
    meeting = [
        settings_of("--average-every", "4", "--checkpoint-every", each).fingerprint()
        for each in ("100", "7")
    ]
    assert len({plain.fingerprint(), *meeting}) == 3
