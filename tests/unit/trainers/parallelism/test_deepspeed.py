from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainers import given_settings
from trainers.errors import LaunchInvalid
from trainers.parallelism.deepspeed import completed, deepspeed_config
from trainers.settings import Settings

OURS = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 2,
}

FOLLOWS = {**OURS, "gradient_clipping": 0.0}


def settings_of(*options: str) -> Settings:
    return given_settings.settings_of("--batch-size", "64", "--accumulate", "2", *options)


def test_without_the_option_there_is_no_config() -> None:
    assert deepspeed_config(settings_of(), 2) is None


@pytest.mark.parametrize("given", [{}, dict.fromkeys(OURS, "auto"), OURS])
def test_the_batch_follows_from_the_options(given: dict[str, Any]) -> None:
    assert completed(given, settings_of(), 2) == {**FOLLOWS, "zero_optimization": {}}


def test_what_is_left_to_us_is_left_to_deepspeed_and_the_rest_is_kept() -> None:
    zero = {"stage": 2, "reduce_bucket_size": "auto", "overlap_comm": False}
    config = completed({"zero_optimization": zero, "steps_per_print": 7}, settings_of(), 2)
    assert config == {
        "zero_optimization": {"stage": 2, "overlap_comm": False},
        "steps_per_print": 7,
        **FOLLOWS,
    }


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"train_batch_size": 32}, r"train_batch_size is 32 .* make 64"),
        ({"train_micro_batch_size_per_gpu": 64}, "make 16"),
        ({"gradient_accumulation_steps": 1}, "make 2"),
        ({"optimizer": {"type": "Adam"}}, "optimizer .* our option"),
        ({"fp16": {"enabled": True}}, "fp16 .* leave it out"),
        ({"gradient_clipping": 1.0}, "gradient_clipping .* leave it out"),
        ({"zero_optimization": {"stage": 3}}, "--parallel fsdp"),
        ({"zero_optimization": {"offload_optimizer": {}}}, "offloading"),
    ],
    ids=str,
)
def test_what_contradicts_is_named_with_its_mend(config: dict[str, Any], told: str) -> None:
    with pytest.raises(LaunchInvalid, match=told):
        completed(config, settings_of(), 2)


@pytest.mark.parametrize(
    "options",
    [
        ("--parallel", "fsdp"),
        ("--tensor-parallel", "2"),
        ("--pipeline-parallel", "2"),
        ("--compile", "eager"),
        ("--precision", "bf16"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_with_it_are_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(LaunchInvalid, match=f"{options[0]}.* does not work with --deepspeed"):
        deepspeed_config(settings_of("--deepspeed", "x.json", *options), 2)


@pytest.mark.parametrize(("ranks", "told"), [(1, "two ranks"), (3, "does not divide into 3 ranks")])
def test_ranks_have_to_fit(ranks: int, told: str) -> None:
    with pytest.raises(LaunchInvalid, match=told):
        deepspeed_config(settings_of("--deepspeed", "x.json"), ranks)


@pytest.mark.parametrize("content", [None, b"{", b"[1]", b"\xff", b'{"zero_optimization": 2}'])
def test_a_file_that_is_no_config_is_refused(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", str)  # it is found
    path = tmp_path / "deepspeed.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LaunchInvalid, match=r"deepspeed\.json is no"):
        deepspeed_config(settings_of("--deepspeed", str(path)), 2)


def test_a_missing_deepspeed_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", dict[str, str]().get)  # it is not
    path = tmp_path / "deepspeed.json"
    path.write_text("{}")
    with pytest.raises(LaunchInvalid, match="install deepspeed"):
        deepspeed_config(settings_of("--deepspeed", str(path)), 2)
