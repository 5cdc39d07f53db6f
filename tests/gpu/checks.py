"""The checks of `python -m tests.gpu`, in the order in which they are run.

Each is given a folder and the device (`cuda` or `cpu`) and returns figures by name; it fails by an
exception. Tolerances are relative, of losses over the first steps.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.runs import (
    LIMIT_SECONDS,
    REPOSITORY,
    Ended,
    command,
    synthetic,
    train,
    train_and_kill,
)

Figures = dict[str, Any]

# Of losses near 2 over 8 steps. 32-bit products in another order; 10 and 8 bits of mantissa.
TOLERANCE = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 5e-2}
# NVIDIA's DeepLearningExamples, resnet50v1.5, PyTorch with AMP: one A100.
A100_IMAGES_PER_SECOND = 2_470
GOAL_IMAGES_PER_SECOND = 1.3 * A100_IMAGES_PER_SECOND  # of one H100

SMALL = (
    *synthetic(images=64, size=32),
    *("--batch-size", "16", "--epochs", "2", "--log-every", "1", "--learning-rate", "0.05"),
)
RESNET50 = (
    *("--model", "resnet50-batchnorm", "--batch-size", "256", "--shift-pixels", "0"),
    *("--epochs", "1", "--log-every", "5", "--checkpoint-every", "1000000"),
)


@dataclass(frozen=True)
class Check:
    """One check: what it is called, what it does, what it needs."""

    name: str
    run: Callable[[Path, str], Figures]
    needs_gpu: bool = False
    needs_package: str | None = None

    def why_not_on(self, device: str) -> str | None:
        """Why it cannot be run here; None if it can."""
        if self.needs_gpu and device != "cuda":
            return "needs a GPU"
        if self.needs_package is not None and not importlib.util.find_spec(self.needs_package):
            return f"needs {self.needs_package}, which is not installed"
        return None


def apart(losses: Sequence[float], others: Sequence[float]) -> float:
    """The largest relative difference."""
    assert len(losses) == len(others) > 0
    pairs = zip(losses, others, strict=True)
    return max(abs(mine - other) / abs(other) for mine, other in pairs)


def check_losses(folder: Path, device: str) -> Figures:
    """Each precision against 32 bits on the CPU."""
    on_cpu = train(folder / "cpu", *SMALL, "--device", "cpu", "--precision", "fp32").losses
    figures: Figures = {}
    for precision, tolerance in TOLERANCE.items():
        where = ("--device", device, "--precision", precision)
        figures[precision] = apart(train(folder / precision, *SMALL, *where).losses, on_cpu)
        assert figures[precision] < tolerance, (precision, figures)
    return figures


def check_repeatable(folder: Path, device: str) -> Figures:
    """Two deterministic runs have the same weights; how far apart two fast ones are is told."""
    del device
    model = (*SMALL, "--model", "resnet18-batchnorm")
    first, second = (train(folder / name, *model, "--deterministic") for name in ("a", "b"))
    assert first.weights == second.weights
    fast, again = (train(folder / name, *model) for name in ("c", "d"))
    return {
        "fast_losses_apart": apart(again.losses, fast.losses),
        "fast_weights_equal": fast.weights == again.weights,
    }


def check_transformer_repeatable(folder: Path, device: str) -> Figures:
    """Attention's backward pass, too."""
    del device
    model = (*SMALL, "--model", "vit-tiny", "--deterministic")
    first, second = (train(folder / name, *model) for name in ("a", "b"))
    assert first.weights == second.weights
    return {"last_loss": first.losses[-1]}


def check_refusal(folder: Path, device: str) -> Figures:
    """A kernel without a deterministic form is named, and is no problem in a fast run."""
    del device
    model = (*SMALL, "--model", "tests.gpu.networks:Averaging")
    error = train(folder / "a", *model, "--deterministic", code=1).document("error")
    assert error["type"] == "LaunchInvalid", error
    assert "adaptive_avg_pool2d_backward_cuda has no deterministic form" in error["message"], error
    train(folder / "b", *model)
    return {"named": error["message"].split()[0]}


def check_kill_and_resume(folder: Path, device: str) -> Figures:
    """kill -9 after a checkpoint; the run goes on to the weights of an undisturbed one."""
    del device
    options = (*SMALL, "--epochs", "8", "--deterministic", "--checkpoint-every", "4")
    undisturbed = train(folder / "a", *options)
    train_and_kill(folder / "b", *options, at="checkpoint step 8")
    resumed = train(folder / "b", *options)
    assert "resumed from step" in resumed.output
    assert resumed.weights == undisturbed.weights
    return {"resumed_from_step": resumed.document("metrics")["resumed_from_step"]}


def check_options(folder: Path, device: str) -> Figures:
    """What changes speed or memory keeps the loss."""
    del device
    model = (*SMALL, "--model", "resnet18-batchnorm", "--precision", "fp32")
    plain = train(folder / "plain", *model, "--no-channels-last").losses
    figures = {
        option: apart(train(folder / option, *model, option).losses, plain)
        for option in ("--channels-last", "--checkpoint-activations")
    }
    group_norm = (*SMALL, "--precision", "fp32")
    whole = train(folder / "whole", *group_norm).losses
    figures["--accumulate 2"] = apart(
        train(folder / "parts", *group_norm, "--accumulate", "2").losses, whole
    )
    assert max(figures.values()) < TOLERANCE["fp32"], figures
    return figures


def check_compile(folder: Path, device: str) -> Figures:
    """torch.compile's own backend."""
    del device
    plain = train(folder / "plain", *SMALL, "--precision", "fp32")
    compiled = train(folder / "compiled", *SMALL, "--precision", "fp32", "--compile", "inductor")
    figures = {"apart": apart(compiled.losses, plain.losses)}
    assert figures["apart"] < TOLERANCE["fp32"], figures
    return figures


def check_one_rank(folder: Path, device: str) -> Figures:
    """FSDP and a pipeline in a process group of one: see `tests.gpu.one_rank`."""
    del folder
    told = _json_of("-m", "tests.gpu.one_rank")
    assert told["backend"] == ("nccl" if device == "cuda" else "gloo")
    for name in ("fsdp", "pipeline"):
        assert apart([told[name]], [told["plain"]]) < TOLERANCE["fp32"], told
        assert told[f"{name}_apart"] < TOLERANCE["fp32"], told
    return told


def check_no_gpu_is_visible(folder: Path, device: str) -> Figures:
    """An empty CUDA_VISIBLE_DEVICES: the CPU, or an error where a GPU is insisted on."""
    del device
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    assert "1 ranks on cpu" in train(folder / "a", *SMALL, variables=hidden).output
    error = train(folder / "b", *SMALL, "--device", "cuda", code=1, variables=hidden).document(
        "error"
    )
    assert "sees no GPU (CUDA_VISIBLE_DEVICES is '')" in error["message"], error
    return {"error": error["type"]}


def check_too_many_ranks(folder: Path, device: str) -> Figures:
    """Two ranks that see one GPU are told how many to start."""
    del device
    told = _two_ranks(folder, "--device", "cuda")
    assert "has 2 ranks and 1 GPUs" in told["message"], told
    return {"error": told["type"]}


def check_hang(folder: Path, device: str) -> Figures:
    """A kernel that does not end: the watchdog ends the run and leaves the stacks."""
    del device
    model = (*SMALL, "--model", "tests.gpu.networks:Hanging", "--step-timeout-seconds", "5")
    ended = train(folder, *model, code=124)
    stacks = (folder / "results" / "stacks-rank-0.txt").read_text()
    assert "loop.py" in stacks, stacks
    return {"error": ended.document("error")["type"]}


def measure_resnet50(folder: Path, device: str) -> Figures:
    """ResNet-50, bf16, synthetic images of 224 pixels: eager and compiled, against the goal."""
    del device
    figures: Figures = {}
    for name, options in (("eager", ()), ("compiled", ("--compile", "inductor"))):
        images = synthetic(images=256 * 100, size=224, classes=1000)
        ended = train(folder / name, *images, *RESNET50, "--precision", "bf16", *options)
        figures |= _speed_figures(name, ended)
        shutil.rmtree(folder / name)
    best = max(figures["eager_images_per_second"], figures["compiled_images_per_second"])
    return figures | {
        "goal_images_per_second": GOAL_IMAGES_PER_SECOND,
        "reaches_goal": best >= GOAL_IMAGES_PER_SECOND,
    }


def _speed_figures(name: str, ended: Ended) -> Figures:
    report = ended.document("report")["speed"]
    rate = ended.steady_images_per_second
    mfu = report["model_flops_utilisation"]
    if mfu is not None:  # the report's is of the whole run, its first steps included
        mfu *= rate / report["images_per_second"]
    return {
        f"{name}_images_per_second": rate,
        f"{name}_mfu": mfu,
        f"{name}_data_wait_fraction": report["data_wait_fraction"],
        f"{name}_peak_memory_gib": report["peak_device_memory_bytes"] / 2**30,
    }


def measure_modes(folder: Path, device: str) -> Figures:
    """What determinism and exact products cost, as a part of the speed of the fast run."""
    del device
    images = synthetic(images=256 * 30, size=224, classes=1000)

    def rate(name: str, *options: str) -> float:
        return train(folder / name, *images, *RESNET50, *options).steady_images_per_second

    fast = rate("fast", "--precision", "bf16")
    return {
        "deterministic": rate("det", "--precision", "bf16", "--deterministic") / fast,
        "no_channels_last": rate("first", "--precision", "bf16", "--no-channels-last") / fast,
        "tf32": rate("tf32") / fast,
        "fp32": rate("fp32", "--precision", "fp32") / fast,
    }


def measure_mask_rcnn(folder: Path, device: str) -> Figures:
    """Mask R-CNN with ResNet-50, eight drawn images of 512 pixels a step."""
    del device
    from tests.local.trainers.drawn_shapes import draw_shapes  # noqa: PLC0415 - needs pillow only
    from tests.unit.trainers.small_datasets import freeze  # noqa: PLC0415 - the same

    data = draw_shapes(folder / "data", images=200, size=512)
    manifest = freeze(data, folder / "manifest")
    ended = train(
        folder / "run",
        *("--dataset", "coco", "--data", str(data), "--manifest", str(manifest)),
        *("--model", "mask-rcnn-resnet50", "--image-size", "512", "--batch-size", "8"),
        *("--precision", "bf16", "--learning-rate", "0.005", "--epochs", "3", "--log-every", "5"),
    )
    assert ended.losses[-1] < ended.losses[0], ended.losses
    return {"steps_per_second": ended.steady_images_per_second / 8}


def measure_checkpoint(folder: Path, device: str) -> Figures:
    """How long training waits for a checkpoint of ResNet-50 and its momentum."""
    del device
    told = _json_of("-m", "benchmarks.checkpoint_stall", str(folder / "saves"), "5")
    return {
        "megabytes": told["megabytes"],
        "stall_ms": 1000 * statistics.median(told["stall_s"]),
        "committed_s": statistics.median(told["committed_s"]),
    }


def _json_of(*arguments: str) -> dict[str, Any]:
    """The last line that a Python program prints."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    return json.loads(ended.stdout.splitlines()[-1])


def _two_ranks(folder: Path, *options: str) -> dict[str, Any]:
    """error.json of a run of two ranks under torchrun, which fails."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    arguments = command(folder, (*SMALL, *options))[1:]
    ended = subprocess.run(
        [sys.executable, *torchrun, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert ended.returncode != 0
    return json.loads((folder / "results" / "error.json").read_bytes())


CHECKS = (
    Check("losses", check_losses),
    Check("repeatable", check_repeatable),
    Check("measure: resnet50", measure_resnet50, needs_gpu=True),
    Check("kill and resume", check_kill_and_resume),
    Check("options", check_options),
    Check("one rank of NCCL", check_one_rank),
    Check("refused kernel", check_refusal, needs_gpu=True),
    Check("hang", check_hang, needs_gpu=True),
    Check("too many ranks", check_too_many_ranks, needs_gpu=True),
    Check("no visible GPU", check_no_gpu_is_visible),
    Check("measure: checkpoint", measure_checkpoint),
    Check("measure: mask r-cnn", measure_mask_rcnn, needs_gpu=True, needs_package="torchvision"),
    Check("measure: modes", measure_modes, needs_gpu=True),
    Check("transformer repeatable", check_transformer_repeatable),
    Check("compile", check_compile, needs_gpu=True),
)
