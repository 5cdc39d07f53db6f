"""The ranks of a run: rendezvous, process group, and exchange of values.

`trainers.parallelism.launch` reads the launcher's variables. Source: docs.pytorch.org
(torch.distributed).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.elastic.utils.store import synchronize
from torch.distributed.rendezvous import rendezvous

from trainers.errors import LaunchInvalid, PeerFailed, TrainingError
from trainers.parallelism.devices import VISIBLE_DEVICES, RankHardware, gpu_of_rank, use_device
from trainers.parallelism.launch import Launch
from trainers.parallelism.options import DeviceChoice

Result = TypeVar("Result")

_SIGN_SECONDS = 0.5  # between two signs of life
_WINDOW_SECONDS = 2.0  # a rank without a sign for so long is missing


@dataclass(kw_only=True)
class World:
    """The ranks of this run, seen from one of them: its number, from 0, and how many there are.

    With one rank there is no process group, and the methods return this rank's values.
    """

    rank: int = 0
    size: int = 1
    device: torch.device
    timeout: dt.timedelta
    _store: Store | None = None

    @classmethod
    def join(
        cls, launch: Launch, *, timeout_seconds: float, device_choice: DeviceChoice = "auto"
    ) -> World:
        """Connect to the store of all ranks; `connect` creates the process group later.

        The timeout limits the wait for other ranks, here and in every collective.

        Raises:
            LaunchInvalid: rank 0 cannot listen on the given port, or a rank has no GPU.
            PeerFailed: rank 0 cannot be reached.
            torch.distributed.DistError: another rank does not connect in time.
        """
        timeout = dt.timedelta(seconds=timeout_seconds)
        store = None if launch.size == 1 else _connect_store(launch, timeout)
        # The CPU, until the ranks have exchanged their hardware.
        device = torch.device("cpu")
        world = cls(
            rank=launch.rank, size=launch.size, device=device, timeout=timeout, _store=store
        )
        mine = RankHardware(
            host=socket.gethostname(),
            local_rank=launch.local_rank,
            visible_devices=os.environ.get(VISIBLE_DEVICES),
            gpus=torch.cuda.device_count(),  # it does not initialize CUDA
        )
        ranks = world._exchange("hardware", mine)
        world.device = use_device(
            gpu_of_rank(launch.rank, ranks, device_choice),
            neighbours=sum(each.host == mine.host for each in ranks),
            environment=os.environ,
        )
        return world

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which logs and writes files for all ranks."""
        return self.rank == 0

    def connect(self) -> None:
        """Start the process group, with NCCL if each rank has a GPU, else with Gloo."""
        if self._store is None:
            return
        on_cuda = self.device.type == "cuda"
        dist.init_process_group(
            "nccl" if on_cuda else "gloo",
            store=PrefixStore("process_group", self._store),
            rank=self.rank,
            world_size=self.size,
            timeout=self.timeout,
            device_id=self.device if on_cuda else None,
        )

    def disconnect(self) -> None:
        """Wait for all ranks, which may still read from each other; end the process group."""
        if self._store is None or not dist.is_initialized():
            return
        self._exchange("leaving", None)
        dist.destroy_process_group()
        self._exchange("left", None)

    def signs_of_life(self) -> SignsOfLife | None:
        """The signs of life of all ranks; None for a single rank."""
        if self._store is None:
            return None
        # torch's type of a store lacks `clone`, which every store has.
        return SignsOfLife(cast("Any", self._store).clone(), self.rank, self.size)

    def run_on_all_ranks(self, name: str, work: Callable[[], Result]) -> Result:
        """Run `work` on every rank. If it fails on one rank, all ranks raise that failure.

        It uses the store, for work before there is a process group. `work` must not exchange
        values between ranks; `name` must be unique in a run.

        Raises:
            TrainingError: the failure of the lowest failing rank; `PeerFailed` if that is not a
                TrainingError.
            Exception: on the failing rank itself, its own exception.
        """
        try:
            result, mine = work(), None
        except Exception as error:  # noqa: BLE001  # every failure goes to the other ranks
            result, mine = None, error
        told = mine
        if self.size > 1 and mine is not None and not isinstance(mine, TrainingError):
            told = PeerFailed(f"rank {self.rank} failed: {type(mine).__name__}: {mine}")
        failures = enumerate(self._exchange(name, told))
        rank, failure = next((each for each in failures if each[1] is not None), (0, None))
        if failure is not None:
            raise mine if mine is not None and rank == self.rank else failure
        return result  # type: ignore[return-value]  # without a failure there is a result

    def _exchange(self, name: str, value: Result) -> list[Result]:
        """Exchange values through the store. Rank 0, which may host it, returns last."""
        if self._store is None:
            return [value]
        seconds = self.timeout.total_seconds()
        found = synchronize(
            self._store, pickle.dumps(value), self.rank, self.size, name, timeout=seconds
        )
        # The ranks of a run trust each other; torch's own exchange of objects unpickles, too.
        return [pickle.loads(each) for each in found]  # noqa: S301

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over all ranks, on each rank."""
        return self.sum_later(values)()

    def sum_later(self, values: Tensor) -> Callable[[], Tensor]:
        """Start `sum`; the returned function waits for it. Do not change `values` before that."""
        work = dist.all_reduce(values, async_op=True) if self.size > 1 else None

        def result() -> Tensor:
            if work is not None:
                work.wait()
            return values

        return result

    def gather(self, value: Result) -> list[Result]:
        """Return the values of all ranks by rank, on each rank. Values are pickled: plain data."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


class SignsOfLife:
    """A number in the store for each rank, which a thread of the rank's process counts up.

    It has its own connection to the store: a connection is locked while another thread waits in it.
    """

    def __init__(self, store: Store, rank: int, ranks: int) -> None:
        self._store = PrefixStore("signs_of_life", store)
        self._rank = rank
        self._ranks = ranks
        threading.Thread(target=self._count, name="signs of life", daemon=True).start()

    def missing(self) -> list[int]:
        """Return the ranks that do not count up within seconds; [0] if the store is gone.

        The store is in rank 0, or in the launcher on its machine.
        """
        found: list[int] = [0]
        # A store whose machine is frozen keeps its caller for ever, whatever its timeout is.
        asking = threading.Thread(target=self._ask, args=(found,), daemon=True)
        asking.start()
        asking.join(2 * _WINDOW_SECONDS)
        return found

    def _ask(self, found: list[int]) -> None:
        others = [rank for rank in range(self._ranks) if rank != self._rank]
        with contextlib.suppress(dist.DistError):
            before = {rank: self._store.add(str(rank), 0) for rank in others}
            time.sleep(_WINDOW_SECONDS)
            found[:] = [rank for rank in others if self._store.add(str(rank), 0) == before[rank]]

    def _count(self) -> None:
        # Without a store, collectives fail, too: they report it.
        with contextlib.suppress(dist.DistError):
            while True:
                self._store.add(str(self._rank), 1)
                time.sleep(_SIGN_SECONDS)


def _connect_store(launch: Launch, timeout: dt.timedelta) -> Store:
    """Connect to the store of all ranks, which is in rank 0 or in torchrun's agent."""
    where = f"{launch.host}:{launch.port} (MASTER_ADDR, MASTER_PORT)"
    os.environ |= {
        "RANK": str(launch.rank),
        "WORLD_SIZE": str(launch.size),
        "MASTER_ADDR": launch.host,
        "MASTER_PORT": str(launch.port),
    }
    try:
        store, _, _ = next(rendezvous("env://", timeout=timeout))
    except ValueError as error:
        raise LaunchInvalid(f"ranks cannot connect at {where}: {error}") from error
    except dist.DistNetworkError as error:
        reason = str(error).splitlines()[0]
        if "failed to listen" in reason:
            raise LaunchInvalid(
                f"rank {launch.rank} cannot listen on {where}: another program does, perhaps an "
                f"earlier run; end it or choose another port ({reason})"
            ) from error
        if launch.rank == 0:
            raise
        raise PeerFailed(f"rank 0 cannot be reached at {where}: {reason}") from error
    store.set_timeout(timeout)
    return PrefixStore(f"landfall/{incarnation(os.environ)}", store)


def is_loss_of_peer(error: Exception) -> bool:
    """Whether a collective or the store failed because a rank died or did not respond in time."""
    # Gloo raises a plain RuntimeError, so only its text distinguishes it.
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error)
    )


def incarnation(environment: Mapping[str, str]) -> str:
    """Return a name for this restart by torchrun, for keys in the store.

    torchrun's agent keeps the store over a restart, so that new ranks would read the addresses of
    the old ones (pytorch issue 135712). On several machines the agents' counts may differ, so there
    the name is constant: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 makes a store for each restart.
    """
    one_agent = environment.get("GROUP_WORLD_SIZE") == "1"
    return environment.get("TORCHELASTIC_RESTART_COUNT", "0") if one_agent else "0"
