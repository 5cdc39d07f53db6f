from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.trainers.given_settings import settings_of
from trainers.errors import LaunchInvalid
from trainers.parallelism.devices import (
    CUBLAS_VARIABLE,
    REPEATABLE_WORKSPACES,
    RankHardware,
    choose_kernels,
    gpu_of_rank,
    prepare_environment,
    record_collectives,
    thread_of,
    use_device,
)
from trainers.reports.error_file import clear_error


def rank(
    host: str = "a", local_rank: int = 0, gpus: int = 0, visible: str | None = None
) -> RankHardware:
    return RankHardware(host=host, local_rank=local_rank, visible_devices=visible, gpus=gpus)


def gpus_of(*ranks: RankHardware) -> list[int | None]:
    return [gpu_of_rank(number, ranks, "auto") for number in range(len(ranks))]


def test_one_rank_takes_the_first_gpu_or_the_cpu() -> None:
    assert gpus_of(rank()) == [None]
    assert gpus_of(rank(gpus=4)) == [0]
    assert gpus_of(rank(visible="")) == [None]  # CUDA_VISIBLE_DEVICES= hides all GPUs


def test_ranks_of_a_machine_take_a_gpu_each_by_local_rank() -> None:
    by_node = [rank("a", 0, 2), rank("b", 0, 2), rank("a", 1, 2), rank("b", 1, 2)]
    assert gpus_of(*by_node) == [0, 0, 1, 1]
    assert gpus_of(rank("a", 1, 2), rank("a", 0, 2)) == [1, 0]


def test_ranks_that_are_shown_one_gpu_each_take_it() -> None:
    assert gpus_of(*(rank("a", n, 1, visible=str(n)) for n in range(4))) == [0, 0, 0, 0]
    parts = [rank("a", n, 1, visible=f"MIG-{n}") for n in range(2)]
    assert gpus_of(*parts) == [0, 0]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([rank("a", 0, 1), rank("a", 1, 1)], "a has 2 ranks and 1 GPUs that rank 1 can see"),
        ([rank("a", 0, 1), rank("b", 0, 0)], "rank 1 on b sees no GPU"),
        (
            [rank("a", 0, 1, "0"), rank("a", 1, 0, "")],
            "rank 1 on a sees no GPU (CUDA_VISIBLE_DEVICES is '')",
        ),
    ],
)
def test_a_rank_without_a_gpu_among_ranks_with_one_ends_the_run_on_all(
    ranks: list[RankHardware], message: str
) -> None:
    for number in range(len(ranks)):
        with pytest.raises(LaunchInvalid) as caught:
            gpu_of_rank(number, ranks, "auto")
        assert message in str(caught.value)
        assert "--device cpu" in str(caught.value)


def test_cuda_is_insisted_on_and_the_cpu_is_taken_if_told() -> None:
    with pytest.raises(LaunchInvalid, match="rank 0 on a sees no GPU"):
        gpu_of_rank(0, [rank()], "cuda")
    assert gpu_of_rank(0, [rank(gpus=1)], "cuda") == 0
    assert gpu_of_rank(1, [rank("a", 0, 1), rank("a", 1, 1)], "cpu") is None


@given(st.integers(1, 4), st.integers(1, 8), st.booleans())
def test_no_two_ranks_share_a_gpu(hosts: int, per_host: int, isolated: bool) -> None:  # noqa: FBT001
    ranks = [
        rank(f"h{host}", local, 1 if isolated else per_host, str(local) if isolated else None)
        for host in range(hosts)
        for local in range(per_host)
    ]
    taken = [
        (each.host, each.visible_devices, gpu)
        for each, gpu in zip(ranks, gpus_of(*ranks), strict=True)
    ]
    assert len(set(taken)) == len(ranks)


def test_a_gpu_is_made_current_and_a_cpu_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[torch.device] = []
    threads: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)  # there may be no GPU
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    assert use_device(1, neighbours=2, environment={}) == torch.device("cuda", 1)
    assert current == [torch.device("cuda", 1)]
    assert use_device(None, neighbours=10_000, environment={}) == torch.device("cpu")
    assert threads == [1]
    use_device(None, neighbours=1, environment={"OMP_NUM_THREADS": "1"})
    assert threads == [1]


CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


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


def test_nccl_is_told_where_to_write_its_last_collectives(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    line = record_collectives(tmp_path, environment)
    prefix = f"{tmp_path}/collectives-rank-"
    wanted = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_FR_DUMP_TEMP_FILE": prefix}
    assert environment == wanted
    assert all(f"{name}={value}" in line for name, value in wanted.items())
    Path(f"{prefix}0").write_bytes(b"of an earlier start")
    clear_error(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_what_the_user_tells_nccl_stays(name: str, tmp_path: Path) -> None:
    mine = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_FR_BUFFER_SIZE": "9", name: "/mine-"}
    environment = dict(mine)
    line = record_collectives(tmp_path, environment)
    assert environment == mine
    assert all(f"{name}={value}" in line for name, value in mine.items())


def test_a_cpu_is_deterministic_without_being_asked() -> None:
    choose_kernels(settings_of(), CPU)
    assert torch.are_deterministic_algorithms_enabled()
    assert cast("Any", torch.utils.deterministic).fill_uninitialized_memory is False
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    ("options", "is_deterministic", "products"),
    [
        ((), False, "high"),
        (("--deterministic",), True, "high"),
        (("--precision", "fp32"), False, "highest"),
    ],
    ids=["fast", "deterministic", "exact"],
)
def test_a_gpu_is_fast_but_deterministic_or_exact_if_asked(
    *, options: tuple[str, ...], is_deterministic: bool, products: str
) -> None:
    choose_kernels(settings_of(*options), CUDA)
    cudnn = torch.backends.cudnn
    assert torch.are_deterministic_algorithms_enabled() == is_deterministic
    assert (cudnn.benchmark, cudnn.deterministic) == (not is_deterministic, is_deterministic)
    assert cudnn.allow_tf32 == (products == "high")
    assert torch.get_float32_matmul_precision() == products


def test_bf16_is_refused_where_a_gpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_supported(*, including_emulation: bool) -> bool:
        return including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    with pytest.raises(LaunchInvalid, match=r"cuda:0 has no bfloat16 .* --precision tf32"):
        choose_kernels(settings_of("--precision", "bf16"), CUDA)


def test_a_thread_of_a_rank_works_on_the_device_of_the_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_current: list[tuple[str, torch.device]] = []

    def set_device(device: torch.device) -> None:
        made_current.append((threading.current_thread().name, device))

    monkeypatch.setattr(torch.cuda, "set_device", set_device)
    for device in (torch.device("cuda", 3), torch.device("cpu")):
        thread_of(device, "checkpoint").submit(int).result()
    assert made_current == [("checkpoint_0", torch.device("cuda", 3))]
