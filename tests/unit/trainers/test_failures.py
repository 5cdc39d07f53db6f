"""From exceptions to typed failures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.unit.trainers.given_settings import settings_of
from trainers.errors import DataRejected, LaunchInvalid
from trainers.failures import report_failure, typed_failure
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World
from trainers.reports.error_file import write_failure
from trainers.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(folder=tmp_path)


@pytest.fixture
def world() -> World:
    return World.join(Launch(), timeout_seconds=1)


@pytest.mark.parametrize(
    ("error", "type_"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "OutOfMemory"),
        (MemoryError(), "OutOfMemory"),
        (RuntimeError("CUDA error: out of memory"), "OutOfMemory"),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), "OutOfMemory"),
        (dist.DistNetworkError("the client socket has timed out"), "PeerFailed"),
        (RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer"), "PeerFailed"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "RuntimeError"),
        (ValueError("x does not have a deterministic implementation"), "ValueError"),
    ],
)
def test_exceptions_of_torch_become_typed(
    error: Exception, type_: str, settings: Settings, world: World
) -> None:
    assert type(typed_failure(error, settings, world)).__name__ == type_


def test_allocations_that_fail_on_this_machine_are_recognised(
    settings: Settings, world: World
) -> None:
    for allocate in (torch.empty, np.ones):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            allocate(2**44)
        assert type(typed_failure(caught.value, settings, world)).__name__ == "OutOfMemory"


def test_the_kernel_that_refuses_is_named(settings: Settings, world: World) -> None:
    torch.use_deterministic_algorithms(mode=True)
    try:
        with pytest.raises(RuntimeError) as caught:  # torch's own refusal, on any device
            torch.zeros(4).put_(torch.tensor([0]), torch.tensor([1.0]))
    finally:
        torch.use_deterministic_algorithms(mode=False)
    failure = typed_failure(caught.value, settings, world)
    assert isinstance(failure, LaunchInvalid)
    assert "put_ has no deterministic form" in str(failure)
    assert "in resnet8" in str(failure)


def test_cublas_without_its_workspace_is_named(settings: Settings, world: World) -> None:
    # torch's words, from aten/src/ATen/Context.cpp
    error = RuntimeError(
        "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` "
        "or `at::Context::setDeterministicAlgorithms(true)`, but this operation is not "
        "deterministic because it uses CuBLAS and you have CUDA >= 10.2. To enable deterministic "
        "behavior in this case, you must set an environment variable before running your PyTorch "
        "application: CUBLAS_WORKSPACE_CONFIG=:4096:8 or CUBLAS_WORKSPACE_CONFIG=:16:8."
    )
    failure = typed_failure(error, settings, world)
    assert "cuBLAS has no deterministic form" in str(failure)


def test_a_rank_that_never_connects_is_a_failure_of_a_peer(settings: Settings) -> None:
    error = dist.DistStoreError("Timed out after 2 seconds waiting for clients")
    assert type(typed_failure(error, settings, None)).__name__ == "PeerFailed"


def test_the_traceback_of_an_unknown_exception_is_on_stderr(
    settings: Settings, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert report_failure(caught.value, settings, world) == 1
    written = capsys.readouterr().err
    assert "in fail" in written
    assert written.endswith("ZeroDivisionError: by zero\n")
    assert json.loads((settings.output_dir / "error.json").read_bytes())["type"] == (
        "ZeroDivisionError"
    )


def test_the_exit_code_is_that_of_the_typed_failure(
    settings: Settings, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(DataRejected("bad"), settings, world) == 65
    assert capsys.readouterr().err == "DataRejected: bad\n"


def test_an_output_folder_that_cannot_be_written_does_not_hide_the_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_failure(Path("/dev/null/below"), DataRejected("bad"))
    written = capsys.readouterr().err
    assert written.startswith("DataRejected: bad\n")
    assert "NotADirectoryError" in written
