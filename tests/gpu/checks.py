"""The checks of `python -m tests.gpu`, in the order in which they are run.

Each gets a folder and returns figures by name; it fails with an exception. Tolerances are
relative, of losses over the first steps.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.machine import DEVICE
from tests.gpu.runs import (
    LIMIT_SECONDS,
    REPOSITORY,
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
    *("--shift-pixels", "1"),
)
RESNET50 = (
    *("--model", "torchvision/resnet50", "--batch-size", "256", "--shift-pixels", "0"),
    *("--epochs", "1", "--log-every", "5", "--checkpoint-every", "1000000"),
)
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@dataclass(frozen=True)
class Check:
    """One check: its name, its function, and what it needs."""

    name: str
    run: Callable[[Path], Figures]
    needs_gpu: bool = False
    needs_packages: tuple[str, ...] = ()
    needs_compiler: bool = False

    @property
    def why_not(self) -> str | None:
        """The reason why it cannot run here; None if it can."""
        if self.needs_gpu and DEVICE != "cuda":
            return "needs a GPU"
        missing = [name for name in self.needs_packages if not importlib.util.find_spec(name)]
        if missing:
            return f"needs {' and '.join(missing)}, not installed"
        if self.needs_compiler and not can_compile(os.environ):
            return "needs a C compiler (gcc, clang or CC) and Python.h, which Triton uses"
        return None


def can_compile(environment: Mapping[str, str]) -> bool:
    """Whether Triton can build the launchers of its kernels.

    Source: triton/runtime/build.py.
    """
    compilers = (environment.get("CC"), "gcc", "clang")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return headers.exists() and any(name and shutil.which(name) for name in compilers)


def largest_difference(losses: Sequence[float], others: Sequence[float]) -> float:
    """The largest relative difference of two runs' losses."""
    assert len(losses) == len(others) > 0
    pairs = zip(losses, others, strict=True)
    return max(abs(mine - other) / abs(other) for mine, other in pairs)


def check_losses(folder: Path) -> Figures:
    """Each precision against 32 bits on the CPU."""
    on_cpu = train(folder / "cpu", *SMALL, "--device", "cpu", "--precision", "fp32").losses
    figures: Figures = {}
    for precision, tolerance in TOLERANCE.items():
        where = ("--device", DEVICE, "--precision", precision)
        figures[precision] = largest_difference(
            train(folder / precision, *SMALL, *where).losses, on_cpu
        )
        assert figures[precision] < tolerance, (precision, figures)
    return figures


def check_repeatable(folder: Path) -> Figures:
    """Two deterministic runs have the same weights. Two fast ones may differ: see the figures."""
    model = (*SMALL, "--model", "torchvision/resnet18")
    first, second = (train(folder / name, *model, "--deterministic") for name in ("a", "b"))
    assert first.weights == second.weights
    fast, again = (train(folder / name, *model) for name in ("c", "d"))
    return {
        "fast_losses_difference": largest_difference(again.losses, fast.losses),
        "fast_weights_equal": fast.weights == again.weights,
    }


def check_transformer_repeatable(folder: Path) -> Figures:
    """The same with attention, forward and backward."""
    model = (*SMALL, "--model", "timm/vit_tiny_patch16_224", "--deterministic")
    first, second = (train(folder / name, *model) for name in ("a", "b"))
    assert first.weights == second.weights
    return {"last_loss": first.losses[-1]}


def check_refusal(folder: Path) -> Figures:
    """The error names a kernel without a deterministic form; a fast run uses it."""
    model = (*SMALL, "--model", "tests.gpu.networks:Averaging")
    error = train(folder / "a", *model, "--deterministic", code=1).document("error")
    assert error["type"] == "LaunchInvalid", error
    assert "adaptive_avg_pool2d_backward_cuda has no deterministic form" in error["message"], error
    train(folder / "b", *model)
    return {"named": error["message"].split()[0]}


def check_kill_and_resume(folder: Path) -> Figures:
    """kill -9 after a checkpoint: the resumed run ends with the weights of an undisturbed one."""
    options = (*SMALL, "--epochs", "8", "--deterministic", "--checkpoint-every", "4")
    undisturbed = train(folder / "a", *options)
    train_and_kill(folder / "b", *options, at="checkpoint step 8")
    resumed = train(folder / "b", *options)
    assert "resumed from step" in resumed.output
    assert resumed.weights == undisturbed.weights
    return {"resumed_from_step": resumed.document("metrics")["resumed_from_step"]}


def check_options(folder: Path) -> Figures:
    """Options that change speed or memory keep the loss.

    With batch normalization, only that of the first two steps: its gradients here are those of 16
    values a channel, and each step makes a difference of rounding several times as large.
    """
    exact = (*SMALL, "--precision", "fp32")
    batch_norm, plain = (*exact, "--model", "torchvision/resnet18"), "--no-channels-last"
    losses = train(folder / "plain", *exact, plain).losses
    figures = {
        option: largest_difference(train(folder / option, *exact, *option.split()).losses, losses)
        for option in (
            *("--channels-last", "--accumulate 2"),
            *("--checkpoint-activations full", "--checkpoint-activations selective"),
        )
    }
    figures["--channels-last, batch normalization"] = largest_difference(
        train(folder / "last", *batch_norm, "--channels-last").losses[:2],
        train(folder / "first", *batch_norm, plain).losses[:2],
    )
    assert max(figures.values()) < TOLERANCE["fp32"], figures
    return figures


def check_compile(folder: Path) -> Figures:
    """torch.compile's own backend."""
    plain = train(folder / "plain", *SMALL, "--precision", "fp32")
    compiled = train(folder / "compiled", *SMALL, "--precision", "fp32", "--compile", "inductor")
    figures = {"difference": largest_difference(compiled.losses, plain.losses)}
    assert figures["difference"] < TOLERANCE["fp32"], figures
    return figures


def check_one_rank(folder: Path) -> Figures:
    """FSDP and a pipeline in a process group of one: see `tests.gpu.one_rank`."""
    del folder
    found = _json_of("-m", "tests.gpu.one_rank")
    assert found["backend"] == ("nccl" if DEVICE == "cuda" else "gloo")
    for name in ("fsdp", "pipeline"):
        assert largest_difference([found[name]], [found["plain"]]) < TOLERANCE["fp32"], found
        assert found[f"{name}_difference"] < TOLERANCE["fp32"], found
    return found


def check_no_gpu_is_visible(folder: Path) -> Figures:
    """With an empty CUDA_VISIBLE_DEVICES a run takes the CPU, or fails with --device cuda."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    assert "1 ranks on cpu" in train(folder / "a", *SMALL, variables=hidden).output
    error = train(folder / "b", *SMALL, "--device", "cuda", code=1, variables=hidden).document(
        "error"
    )
    assert "sees no GPU (CUDA_VISIBLE_DEVICES is '')" in error["message"], error
    return {"error": error["type"]}


def check_too_many_ranks(folder: Path) -> Figures:
    """Two ranks that see one GPU fail with the number of ranks to start."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    options = (*SMALL, "--device", "cuda")
    variables = {"CUDA_VISIBLE_DEVICES": visible}
    ended = train(folder, *options, code=1, variables=variables, launcher=TWO_RANKS)
    error = ended.document("error")
    assert "has 2 ranks and 1 GPUs" in error["message"], error
    return {"error": error["type"]}


def check_hang(folder: Path) -> Figures:
    """The watchdog ends a run whose kernel does not end, and writes the stacks."""
    model = (*SMALL, "--model", "tests.gpu.networks:Hanging", "--step-timeout-seconds", "5")
    ended = train(folder, *model, code=124)
    stacks = (folder / "results" / "stacks-rank-0.txt").read_text()
    assert "loop.py" in stacks, stacks
    return {"error": ended.document("error")["type"]}


def measure_resnet50(folder: Path, *options: str) -> Figures:
    """ResNet-50, bf16, synthetic images of 224 pixels, against the goal."""
    images = synthetic(images=256 * 100, size=224, classes=1000)
    ended = train(folder, *images, *RESNET50, "--precision", "bf16", *options)
    report = ended.document("report")["speed"]
    rate = ended.steady_images_per_second
    return {
        "images_per_second": rate,
        "data_wait_fraction": report["data_wait_fraction"],
        "peak_memory_gib": report["peak_device_memory_bytes"] / 2**30,
        "goal_images_per_second": GOAL_IMAGES_PER_SECOND,
        "reaches_goal": rate >= GOAL_IMAGES_PER_SECOND,
    }


def measure_compiled_resnet50(folder: Path) -> Figures:
    """The same through torch.compile."""
    return measure_resnet50(folder, "--compile", "inductor")


def measure_modes(folder: Path) -> Figures:
    """The speed of other modes as a fraction of that of the fast run."""
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


def measure_mask_rcnn(folder: Path) -> Figures:
    """Mask R-CNN with ResNet-50, eight drawn images of 512 pixels a step."""
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


def measure_checkpoint(folder: Path) -> Figures:
    """How long training waits for a checkpoint of ResNet-50 and its momentum."""
    found = _json_of("-m", "benchmarks.checkpoint_stall", str(folder / "saves"), "5")
    return {
        "megabytes": found["megabytes"],
        "stall_ms": 1000 * statistics.median(found["stall_seconds"]),
        "committed_seconds": statistics.median(found["committed_seconds"]),
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


CHECKS = (
    Check("losses", check_losses),
    Check("repeatable", check_repeatable),
    Check("measure: resnet50", measure_resnet50, needs_gpu=True),
    Check(
        *("measure: compiled resnet50", measure_compiled_resnet50),
        needs_gpu=True,
        needs_compiler=True,
    ),
    Check("kill and resume", check_kill_and_resume),
    Check("options", check_options),
    Check("one rank of NCCL", check_one_rank),
    Check("refused kernel", check_refusal, needs_gpu=True),
    Check("hang", check_hang, needs_gpu=True),
    Check("too many ranks", check_too_many_ranks, needs_gpu=True),
    Check("no visible GPU", check_no_gpu_is_visible),
    Check("measure: checkpoint", measure_checkpoint),
    Check(
        *("measure: mask r-cnn", measure_mask_rcnn),
        needs_gpu=True,
        needs_packages=("torchmetrics", "faster_coco_eval"),
    ),
    Check("measure: modes", measure_modes, needs_gpu=True),
    Check("transformer repeatable", check_transformer_repeatable, needs_packages=("timm",)),
    Check("compile", check_compile, needs_gpu=True, needs_compiler=True),
)
