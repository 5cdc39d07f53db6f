from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from trainers.errors import LaunchInvalid
from trainers.numerics import (
    CUBLAS_VARIABLE,
    REPEATABLE_WORKSPACES,
    configure,
    not_repeatable,
    prepare_environment,
)
from trainers.settings import Settings, parse_settings

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


def settings_of(*arguments: str) -> Settings:
    return parse_settings("", ["--output-dir", "o", "--checkpoint-dir", "c", *arguments])


@pytest.fixture(autouse=True)
def _kernels_as_before() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32
    products = torch.get_float32_matmul_precision()
    deterministic = torch.are_deterministic_algorithms_enabled()
    yield
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = before
    torch.set_float32_matmul_precision(products)
    torch.use_deterministic_algorithms(deterministic)


def test_the_workspace_of_cublas_is_set_where_repeatable_runs_are_asked_for() -> None:
    environment: dict[str, str] = {}
    prepare_environment(settings_of(), environment)
    assert environment == {}
    prepare_environment(settings_of("--deterministic"), environment)
    assert environment == {CUBLAS_VARIABLE: ":4096:8"}


@pytest.mark.parametrize("workspace", REPEATABLE_WORKSPACES)
def test_a_repeatable_workspace_that_is_set_stays(workspace: str) -> None:
    environment = {CUBLAS_VARIABLE: workspace}
    prepare_environment(settings_of("--deterministic"), environment)
    assert environment == {CUBLAS_VARIABLE: workspace}


def test_a_workspace_that_is_not_repeatable_is_refused_by_name() -> None:
    environment = {CUBLAS_VARIABLE: ":0:0"}
    prepare_environment(settings_of(), environment)
    with pytest.raises(LaunchInvalid, match="CUBLAS_WORKSPACE_CONFIG=:0:0 is not repeatable"):
        prepare_environment(settings_of("--deterministic"), environment)


def test_a_cpu_is_deterministic_without_being_asked() -> None:
    configure(settings_of(), CPU)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_gpu_is_fast_by_default() -> None:
    configure(settings_of(), CUDA)
    assert not torch.are_deterministic_algorithms_enabled()
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (True, False)
    assert torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "high"


def test_a_gpu_is_deterministic_if_asked() -> None:
    configure(settings_of("--deterministic"), CUDA)
    assert torch.are_deterministic_algorithms_enabled()
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (False, True)


def test_products_of_32_bits_are_exact_if_asked() -> None:
    configure(settings_of("--precision", "fp32"), CUDA)
    assert not torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"


def test_bf16_is_refused_where_a_gpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_supported(*, including_emulation: bool) -> bool:
        return including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    with pytest.raises(LaunchInvalid, match=r"cuda:0 has no bfloat16 .* --precision tf32"):
        configure(settings_of("--precision", "bf16"), CUDA)


def test_the_kernel_that_refuses_is_named() -> None:
    torch.use_deterministic_algorithms(mode=True)
    with pytest.raises(RuntimeError) as caught:  # torch's own refusal, on any device
        torch.zeros(4).put_(torch.tensor([0]), torch.tensor([1.0]))
    error = not_repeatable(caught.value, "mine:network")
    assert "put_ has no deterministic form" in str(error)
    assert "mine:network" in str(error)


def test_cublas_without_its_workspace_is_named() -> None:
    # torch's words, from aten/src/ATen/Context.cpp
    error = RuntimeError(
        "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` "
        "or `at::Context::setDeterministicAlgorithms(true)`, but this operation is not "
        "deterministic because it uses CuBLAS and you have CUDA >= 10.2. To enable deterministic "
        "behavior in this case, you must set an environment variable before running your PyTorch "
        "application: CUBLAS_WORKSPACE_CONFIG=:4096:8 or CUBLAS_WORKSPACE_CONFIG=:16:8."
    )
    assert "cuBLAS has no deterministic form" in str(not_repeatable(error, "mine:network"))


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), ValueError("x does not have a")])
def test_other_failures_name_no_kernel(error: Exception) -> None:
    assert not_repeatable(error, "mine:network") is None
