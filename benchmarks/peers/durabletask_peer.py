"""The Durable Task SDK: `python -m benchmarks.peers.durabletask_peer STATE scheduler|memory`.

Client and worker are in this process, what they talk to by gRPC is in another one: `localazure
scheduler`, or the SDK's own backend for tests, which keeps nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from durabletask.client import TaskHubGrpcClient
from durabletask.task import ActivityContext, OrchestrationContext, Task, when_all
from durabletask.worker import TaskHubGrpcWorker

from benchmarks.child_process import running_command
from benchmarks.peers.line_protocol import Peer, serve
from localazure.processes.ports import LOOPBACK, free_ports

STEPS = 6
IN_MEMORY = """
import signal, sys
from durabletask.testing import create_test_backend
create_test_backend(port=int(sys.argv[1]))
signal.pause()
"""
END_SECONDS = 60


def step(_: ActivityContext, value: int) -> int:
    """A step without work."""
    return value + 1


def chain(context: OrchestrationContext, _: int) -> Generator[Any, Any, int]:
    """Six steps, one after the other."""
    value = 0
    for _ in range(STEPS):
        value = yield context.call_activity(step, input=value)
    return value


def fan_out(context: OrchestrationContext, width: int) -> Generator[Any, Any, int]:
    """Run the steps in parallel."""
    steps: list[Task[int]] = [context.call_activity(step, input=number) for number in range(width)]
    return len((yield when_all(steps)))


class DurableTask(Peer):
    """The client; a worker is connected to the same address."""

    def __init__(self, address: str) -> None:
        self._client = TaskHubGrpcClient(host_address=address)

    def start(self, workflow: str, argument: int = 0) -> str:
        """See `Peer`."""
        function = {"chain": chain, "fan_out": fan_out}[workflow]
        return self._client.schedule_new_orchestration(function, input=argument)

    def end(self, started: str) -> Any:
        """See `Peer`."""
        state = self._client.wait_for_orchestration_completion(started, timeout=END_SECONDS)
        assert state is not None
        state.raise_if_failed()
        return state.serialized_output


@contextlib.contextmanager
def backend(kind: str, state: Path) -> Generator[str]:
    """Have the other process running; gives its address."""
    (port,) = free_ports(1)
    scheduler = ["-m", "localazure", "scheduler", "--port", str(port), "--page-port", "0"]
    scheduler += ["--state", str(state)]
    arguments = scheduler if kind == "scheduler" else ["-c", IN_MEMORY, str(port)]
    with running_command(kind, [sys.executable, *arguments], port, state):
        yield f"{LOOPBACK}:{port}"


def main() -> None:
    """Run the command line above."""
    state, kind = Path(sys.argv[1]), sys.argv[2]
    with backend(kind, state) as address, TaskHubGrpcWorker(host_address=address) as worker:
        worker.add_orchestrator(chain)
        worker.add_orchestrator(fan_out)
        worker.add_activity(step)
        worker.start()
        serve(DurableTask(address))


if __name__ == "__main__":
    main()
