"""How a device computes: repeatable or fast, with which precision of 32-bit products.

| device | default | `--deterministic` |
|---|---|---|
| CPU | deterministic kernels | the same |
| CUDA | cuDNN tries its kernels, keeps the fastest; atomics add in any order | deterministic \
kernels only; cuDNN does not try; cuBLAS gets a fixed workspace |

`--precision` chooses how products of 32-bit numbers are computed on CUDA: `fp32` exactly, `tf32`
with 10 bits of mantissa on tensor cores (convolutions and matrix products; sums, parameters and the
loss keep 32 bits), `bf16` by autocast. A CPU computes `tf32` as `fp32`.

Sources: docs.pytorch.org, "Reproducibility", "torch.use_deterministic_algorithms", "CUDA semantics"
(TensorFloat-32); docs.nvidia.com, cuBLAS, "Results reproducibility".
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping

import torch

from trainers.errors import LaunchInvalid
from trainers.settings import Settings

CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
# cuBLAS documents these two as repeatable. The first takes 24 MiB of a device, the second 8 KiB and
# may be slower.
REPEATABLE_WORKSPACES = (":4096:8", ":16:8")
# torch's messages where a kernel has no deterministic form; the second is of cuBLAS.
_REFUSAL = re.compile(
    r"^(?P<kernel>\S+) does not have a deterministic implementation|uses CuBLAS and you have CUDA"
)


def prepare_environment(settings: Settings, environment: MutableMapping[str, str]) -> None:
    """Set the variables that CUDA reads when it starts in this process.

    Args:
        settings: of the run.
        environment: of this process, changed in place.

    Raises:
        LaunchInvalid: the environment contradicts `--deterministic`.
    """
    if not settings.deterministic:
        return
    workspace = environment.setdefault(CUBLAS_VARIABLE, REPEATABLE_WORKSPACES[0])
    if workspace not in REPEATABLE_WORKSPACES:
        raise LaunchInvalid(
            f"{CUBLAS_VARIABLE}={workspace} is not repeatable, but --deterministic is given: "
            f"unset it, or set it to one of {', '.join(REPEATABLE_WORKSPACES)}"
        )


def configure(settings: Settings, device: torch.device) -> None:
    """Choose the kernels of this process, for `device`.

    Raises:
        LaunchInvalid: the device has no `--precision` of this kind.
    """
    on_cuda = device.type == "cuda"
    is_deterministic = settings.deterministic or not on_cuda
    torch.use_deterministic_algorithms(is_deterministic)
    if not on_cuda:
        return
    torch.backends.cudnn.benchmark = not is_deterministic
    torch.backends.cudnn.deterministic = is_deterministic
    uses_tf32 = settings.precision != "fp32"
    torch.backends.cudnn.allow_tf32 = uses_tf32
    torch.set_float32_matmul_precision("high" if uses_tf32 else "highest")
    if settings.precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise LaunchInvalid(
            f"{torch.cuda.get_device_name(device)} has no bfloat16 arithmetic, but --precision "
            "bf16 is given: use --precision tf32, or a GPU of compute capability 8.0 or newer "
            "(A100, L4, H100)"
        )


def not_repeatable(error: BaseException, architecture: str) -> LaunchInvalid | None:
    """If torch reports a kernel without a deterministic form, the error that says how to go on."""
    found = _REFUSAL.search(str(error)) if isinstance(error, RuntimeError) else None
    if found is None:
        return None
    return LaunchInvalid(
        f"{found['kernel'] or 'cuBLAS'} has no deterministic form on this device, and "
        f"deterministic kernels are required: replace what uses it in {architecture} "
        "(torch.use_deterministic_algorithms lists such operations and what to use instead), or "
        "train on a GPU without --deterministic"
    )
