"""The ranks of a run: how they find each other and exchange values.

What their launcher sets is in `trainers.parallelism.launch`. Source: docs.pytorch.org
(torch.distributed).
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainers.errors import LaunchInvalid, PeerFailed, TrainingError
from trainers.parallelism.devices import DeviceChoice, RankHardware, gpu_of_rank, use_device
from trainers.parallelism.launch import Launch

Result = TypeVar("Result")


@dataclass(kw_only=True)
class World:
    """The ranks of this run, seen from one of them.

    A world of one has no process group; its methods return what one rank has.
    """

    launch: Launch
    device: torch.device
    timeout: dt.timedelta
    _store: Store | None = field(default=None, repr=False)

    @classmethod
    def join(
        cls, launch: Launch, *, timeout_seconds: float, device_choice: DeviceChoice = "auto"
    ) -> World:
        """Connect to the store of all ranks; `connect` creates the process group later.

        Args:
            launch: from `Launch.from_environment`.
            timeout_seconds: how long to wait for a rank, here and in every collective.
            device_choice: see `trainers.parallelism.devices`.

        Raises:
            LaunchInvalid: rank 0 cannot listen on the given port, or a rank has no GPU.
            PeerFailed: rank 0 cannot be reached.
            torch.distributed.DistError: another rank does not connect in time.
        """
        timeout = dt.timedelta(seconds=timeout_seconds)
        mine = RankHardware.of_this_process(launch.local_rank, os.environ)
        if launch.size == 1:
            gpu = gpu_of_rank(0, [mine], device_choice)
            device = use_device(gpu, neighbours=1, environment=os.environ)
            return cls(launch=launch, device=device, timeout=timeout)
        os.environ |= {
            "RANK": str(launch.rank),
            "WORLD_SIZE": str(launch.size),
            "MASTER_ADDR": launch.host,
            "MASTER_PORT": str(launch.port),
        }
        store = _connect_store(launch, timeout)
        store.set_timeout(timeout)
        store = PrefixStore(f"landfall/{incarnation(os.environ)}", store)
        store.set(f"hardware/{launch.rank}", json.dumps(dataclasses.asdict(mine)))
        ranks = [
            RankHardware(**json.loads(store.get(f"hardware/{rank}"))) for rank in range(launch.size)
        ]
        device = use_device(
            gpu_of_rank(launch.rank, ranks, device_choice),
            neighbours=sum(each.host == mine.host for each in ranks),
            environment=os.environ,
        )
        return cls(launch=launch, device=device, timeout=timeout, _store=store)

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self.launch.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.launch.size

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which logs and writes for all."""
        return self.rank == 0

    def connect(self) -> None:
        """Start the process group: NCCL where each rank has a GPU, else Gloo."""
        if self._store is None:
            return
        dist.init_process_group(
            "nccl" if self.device.type == "cuda" else "gloo",
            store=PrefixStore("process_group", self._store),
            rank=self.rank,
            world_size=self.size,
            timeout=self.timeout,
            device_id=self.device if self.device.type == "cuda" else None,
        )

    def disconnect(self) -> None:
        """Wait for all ranks and end the process group.

        The store serves as the barrier: no rank closes a connection that another may still read
        from, and rank 0, whose process may hold the store, leaves last.
        """
        if self._store is None or not dist.is_initialized():
            return
        self._store.set(f"leaving/{self.rank}", "1")
        self._store.wait([f"leaving/{rank}" for rank in range(self.size)])
        dist.destroy_process_group()
        self._store.set(f"left/{self.rank}", "1")
        if self.is_first:
            self._store.wait([f"left/{rank}" for rank in range(self.size)])

    def run_on_all_ranks(self, name: str, work: Callable[[], Result]) -> Result:
        """Run `work` on every rank. If it fails on one of them, all of them raise that failure.

        It needs the store and no process group, for work that may fail before there is one.

        Args:
            name: of the work; used once in a run.
            work: runs without exchange between ranks.

        Raises:
            TrainingError: the failure of the lowest failing rank; `PeerFailed` if it is none of
                ours.
            Exception: on the failing rank itself, its own exception.
        """
        result: Result | None = None
        mine: Exception | None = None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  # every failure goes to the other ranks
            mine = error
        failed_rank, failure = self._first_failure(name, mine)
        if failure is None:
            return result  # type: ignore[return-value]  # without a failure there is a result
        raise mine if mine is not None and failed_rank == self.rank else failure

    def _first_failure(self, name: str, mine: Exception | None) -> tuple[int, Exception | None]:
        if self._store is None:
            return 0, mine
        failure = mine
        if mine is not None and not isinstance(mine, TrainingError):
            failure = PeerFailed(f"rank {self.rank} failed: {type(mine).__name__}: {mine}")
        outcome = base64.b64encode(pickle.dumps(failure)).decode()
        self._store.set(f"{name}/outcome/{self.rank}", outcome)
        outcomes = [self._store.get(f"{name}/outcome/{rank}") for rank in range(self.size)]
        # Rank 0 may hold the store: it waits until all have read.
        self._store.set(f"{name}/read/{self.rank}", "1")
        if self.is_first:
            self._store.wait([f"{name}/read/{rank}" for rank in range(self.size)])
        # The ranks of a run trust each other, as torch's own exchange of objects does.
        failures = [pickle.loads(base64.b64decode(each)) for each in outcomes]  # noqa: S301
        failed = ((rank, each) for rank, each in enumerate(failures) if each is not None)
        return next(failed, (0, None))

    def sum(self, values: Tensor) -> Tensor:
        """The sum of `values` over all ranks, on each of them."""
        return self.sum_later(values)()

    def sum_later(self, values: Tensor) -> Callable[[], Tensor]:
        """Begin `sum`; the returned function waits for it. Do not change `values` before that."""
        if self.size == 1:
            return lambda: values
        work = cast("dist.Work", dist.all_reduce(values, async_op=True))

        def result() -> Tensor:
            work.wait()
            return values

        return result

    def gather(self, value: Result) -> list[Result]:
        """The values of all ranks in their order, on each of them. They are pickled: plain data."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, content: bytes | None) -> bytes | None:
        """The content that rank 0 has, on every rank.

        One rank reads for all: mounts of one folder on several machines may lag behind each other.
        """
        if self.size == 1:
            return content
        values = [content]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]


def _connect_store(launch: Launch, timeout: dt.timedelta) -> Store:
    """The store of all ranks, in the process of rank 0 or of torchrun's agent."""
    where = f"{launch.host}:{launch.port} (MASTER_ADDR, MASTER_PORT)"
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
    return store


def is_loss_of_peer(error: Exception) -> bool:
    """Whether a collective or the store failed because a rank died or did not answer in time."""
    # Gloo raises a plain RuntimeError; only its text distinguishes it.
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error)
    )


def incarnation(environment: Mapping[str, str]) -> str:
    """A name that differs each time torchrun restarts the ranks.

    Its agent keeps the store over a restart, and new ranks would read the addresses of the old
    ones (pytorch issue 135712). On several machines the agents' counts may differ: there set
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which makes a store for each restart.
    """
    one_agent = environment.get("GROUP_WORLD_SIZE") == "1"
    return environment.get("TORCHELASTIC_RESTART_COUNT", "0") if one_agent else "0"
