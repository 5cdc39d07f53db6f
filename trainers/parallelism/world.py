"""The ranks of a run: how they find each other and how they agree.

Who starts them is in `trainers.parallelism.launch`. Source: docs.pytorch.org (torch.distributed).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainers.errors import BY_NAME, FileProblem, LaunchInvalid, PeerFailed, TrainingError
from trainers.parallelism.devices import DeviceChoice, RankHardware, gpu_of_rank, use_device
from trainers.parallelism.launch import Launch

Result = TypeVar("Result")


@dataclass(kw_only=True)
class World:
    """The ranks of this run, seen from one of them.

    A world of one has no process group: every method then does the work of one.
    """

    launch: Launch
    device: torch.device
    timeout: dt.timedelta
    _store: Store | None = field(default=None, repr=False)

    @classmethod
    def join(
        cls, launch: Launch, *, timeout_seconds: float, device_choice: DeviceChoice = "auto"
    ) -> World:
        """Meet the other ranks' store; the process group comes later, with `connect`.

        Args:
            launch: from `Launch.from_environment`.
            timeout_seconds: how long to wait for a rank, here and in every collective.
            device_choice: see `trainers.parallelism.devices`.

        Raises:
            LaunchInvalid: rank 0 cannot listen where it was told to, or a rank has no GPU.
            PeerFailed: rank 0 cannot be reached there.
            torch.distributed.DistError: another rank does not come.
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
        store = _meet(launch, timeout)
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
        """Whether this rank speaks and writes for all."""
        return self.rank == 0

    def alone(self) -> World:
        """A world of one on this rank's device."""
        return World(launch=Launch(), device=self.device, timeout=self.timeout)

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

        Over the store and not by a barrier of the group: nobody closes a connection that another
        rank may still read from, and rank 0, which may be home to the store, leaves last.
        """
        if self._store is None or not dist.is_initialized():
            return
        self._store.set(f"leaving/{self.rank}", "1")
        self._store.wait([f"leaving/{rank}" for rank in range(self.size)])
        dist.destroy_process_group()
        self._store.set(f"left/{self.rank}", "1")
        if self.is_first:
            self._store.wait([f"left/{rank}" for rank in range(self.size)])

    def together(self, name: str, work: Callable[[], Result]) -> Result:
        """Do `work` on every rank; if it fails on one, it fails on all of them, alike.

        Needs no process group, only the store: used for what may fail before there is one.

        Args:
            name: what is done; once per run.
            work: what each rank does by itself.

        Raises:
            TrainingError: what the lowest failing rank raised, or `PeerFailed`. On that rank
                itself its own exception, whatever it is.
        """
        result: Result | None = None
        mine: Exception | None = None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  # the edge: every failure is told to the others
            mine = error
        failed_rank, failure = self._first_failure(name, mine)
        if failure is None:
            return result  # type: ignore[return-value]  # without a failure there is a result
        raise mine if mine is not None and failed_rank == self.rank else failure

    def _first_failure(self, name: str, mine: Exception | None) -> tuple[int, Exception | None]:
        if self._store is None:
            return 0, mine
        self._store.set(f"{name}/outcome/{self.rank}", encode_failure(mine))
        outcomes = [self._store.get(f"{name}/outcome/{rank}") for rank in range(self.size)]
        # The store may live in rank 0: it must not leave before all have read.
        self._store.set(f"{name}/read/{self.rank}", "1")
        if self.is_first:
            self._store.wait([f"{name}/read/{rank}" for rank in range(self.size)])
        decoded = [decode_failure(rank, outcome) for rank, outcome in enumerate(outcomes)]
        return next(
            ((rank, failure) for rank, failure in enumerate(decoded) if failure is not None),
            (0, None),
        )

    def sum(self, values: Tensor) -> Tensor:
        """The sum of `values` over all ranks, on each of them."""
        return self.sum_later(values)()

    def sum_later(self, values: Tensor) -> Callable[[], Tensor]:
        """Begin `sum`; what is returned waits for it. `values` is not to be touched meanwhile."""
        if self.size == 1:
            return lambda: values
        work = cast("dist.Work", dist.all_reduce(values, async_op=True))

        def result() -> Tensor:
            work.wait()
            return values

        return result

    def gather(self, value: Result) -> list[Result]:
        """What each rank has, by rank, on each of them. It is pickled: for plain data."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, content: bytes | None) -> bytes | None:
        """What rank 0 has, on every rank.

        One reader for all: mounts of one folder on several machines may lag behind each other.
        """
        if self.size == 1:
            return content
        length = torch.tensor([-1 if content is None else len(content)], device=self.device)
        dist.broadcast(length, src=0)
        count = int(length)
        if count <= 0:
            return None if count < 0 else b""
        buffer = torch.empty(count, dtype=torch.uint8)
        if content is not None and self.is_first:
            buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        buffer = buffer.to(self.device)
        dist.broadcast(buffer, src=0)
        return buffer.cpu().numpy().tobytes()


def _meet(launch: Launch, timeout: dt.timedelta) -> Store:
    """The store of all ranks, which rank 0 is home to unless torchrun's agent is."""
    where = f"{launch.host}:{launch.port} (MASTER_ADDR, MASTER_PORT)"
    try:
        store, _, _ = next(rendezvous("env://", timeout=timeout))
    except ValueError as error:
        raise LaunchInvalid(f"ranks cannot meet at {where}: {error}") from error
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
    # Gloo raises a plain RuntimeError, which only its text tells from others.
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error)
    )


def incarnation(environment: Mapping[str, str]) -> str:
    """A name that differs each time torchrun restarts the ranks.

    Its agent keeps the store over a restart, and new ranks would read the addresses of the dead
    ones (pytorch issue 135712). On several machines the agents' counts may differ: there set
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which makes a store for each restart.
    """
    one_agent = environment.get("GROUP_WORLD_SIZE") == "1"
    return environment.get("TORCHELASTIC_RESTART_COUNT", "0") if one_agent else "0"


def encode_failure(failure: Exception | None) -> str:
    """What a rank tells the others: a failure, or that there is none."""
    if failure is None:
        return ""
    problems = failure.problems if isinstance(failure, TrainingError) else ()
    return json.dumps(
        {
            "type": type(failure).__name__,
            "message": str(failure),
            "problems": [[problem.path, problem.reason] for problem in problems],
            "total_problems": failure.total_problems if isinstance(failure, TrainingError) else 0,
        }
    )


def decode_failure(rank: int, outcome: bytes) -> TrainingError | None:
    """The failure that `rank` told: of its own class if it is one of ours, else `PeerFailed`."""
    if not outcome:
        return None
    value: dict[str, Any] = json.loads(outcome)
    problems = [FileProblem(path=path, reason=reason) for path, reason in value["problems"]]
    kind = BY_NAME.get(value["type"])
    message: str = value["message"]
    if kind is None:
        kind, message = PeerFailed, f"rank {rank} failed: {value['type']}: {message}"
    return kind(message, problems, total_problems=value["total_problems"])
