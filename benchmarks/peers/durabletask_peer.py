"""`python -m benchmarks.peers.durabletask_peer`: durabletask, in memory, so nothing is durable.

Client, backend and worker are one process and talk gRPC over loopback, as its own tests do.
"""

# pyright: basic, reportMissingImports=false
# durabletask is not installed where the checker runs.

from __future__ import annotations

import os
import socket
import time

from durabletask import client, task, worker
from durabletask.testing import create_test_backend

from benchmarks.peers.line_protocol import Peer, serve

STEPS = 6


def step(_: object, value: int) -> int:
    """A step without work."""
    return value + 1


def clock(_: object, __: object) -> int:
    """CLOCK_MONOTONIC in ns."""
    return time.monotonic_ns()


def chain(context, _):  # noqa: ANN001, ANN201 - an orchestrator of its SDK
    """Six steps, one after the other."""
    value = 0
    for _ in range(STEPS):
        value = yield context.call_activity(step, input=value)
    return value


def fan_out(context, width):  # noqa: ANN001, ANN201 - the same
    """Steps all at once."""
    steps = [context.call_activity(step, input=number) for number in range(width)]
    return len((yield task.when_all(steps)))


def first_step(context, _):  # noqa: ANN001, ANN201 - the same
    """A step that returns its start time."""
    return (yield context.call_activity(clock))


class DurableTask(Peer):
    """Client of the engine.

    Args:
        address: of the backend.
    """

    def __init__(self, address: str) -> None:
        self._client = client.TaskHubGrpcClient(host_address=address)

    def start(self, workflow: str, argument: int = 0) -> str:
        """See `Peer`."""
        return self._client.schedule_new_orchestration(workflow, input=argument)

    def end(self, started: str) -> str:
        """See `Peer`."""
        state = self._client.wait_for_orchestration_completion(started, timeout=120)
        if state is None or state.runtime_status != client.OrchestrationStatus.COMPLETED:
            raise RuntimeError(f"{started}: {state}")
        return state.serialized_output or ""


def main() -> None:
    """Run the command line above."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    create_test_backend(port=port)  # runs until the process ends
    address = f"localhost:{port}"
    runner = worker.TaskHubGrpcWorker(host_address=address)
    for orchestrator in (chain, fan_out, first_step):
        runner.add_orchestrator(orchestrator)
    for activity in (step, clock):
        runner.add_activity(activity)
    runner.start()
    serve(DurableTask(address))
    os._exit(0)  # nothing is durable, and its stop takes a second


if __name__ == "__main__":
    main()
