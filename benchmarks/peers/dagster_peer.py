"""Dagster on SQLite: `python -m benchmarks.peers.dagster_peer STATE`.

Jobs run in this process, which spares Dagster a process for each run and each step. They run one
after the other, however many are asked for at once: several at a time over one instance block each
other. There is no event: what starts its runs are schedules, and sensors that poll.
"""

# pyright: basic, reportMissingImports=false
# Dagster is not installed where the checker runs. It reads annotations, which so are no strings.

import os
import sys
from pathlib import Path

import dagster
from dagster import DagsterInstance, DynamicOut, DynamicOutput, OpExecutionContext

from benchmarks.peers.line_protocol import NotOffered, Peer, serve

STEPS = 6


@dagster.op
def first() -> int:
    """A step without work."""
    return 1


@dagster.op
def step(value: int) -> int:
    """A step without work."""
    return value + 1


@dagster.op(out=DynamicOut(int), config_schema={"width": int})
def numbers(context: OpExecutionContext):  # noqa: ANN201 - a generator of its SDK
    """The items of the fan-out."""
    for number in range(context.op_config["width"]):
        yield DynamicOutput(number, mapping_key=str(number))


@dagster.op
def count(values: list[int]) -> int:
    """The end of a fan-out."""
    return len(values)


@dagster.job
def chain() -> None:
    """Six steps, one after the other."""
    value = first()
    for number in range(STEPS - 1):
        value = step.alias(f"step_{number}")(value)


@dagster.job
def fan_out() -> None:
    """Steps all at once, for all that the executor knows."""
    count(numbers().map(step).collect())  # pyright: ignore[reportCallIssue] - Dagster passes the context


class Dagster(Peer):
    """The engine, in this process: a job has ended when its start returns.

    Args:
        instance: where runs and their events are kept.
    """

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance

    def start(self, workflow: str, argument: int = 0) -> None:
        """See `Peer`."""
        job, config = chain, None
        if workflow == "fan_out":
            job, config = fan_out, {"ops": {"numbers": {"config": {"width": argument}}}}
        job.execute_in_process(instance=self._instance, run_config=config)

    def end(self, started: None) -> None:
        """See `Peer`."""

    def trigger(self) -> None:
        """See `Peer`."""
        raise NotOffered("Dagster starts runs by schedules and by sensors that poll, not by events")


def main() -> None:
    """Run the command line above."""
    state = Path(sys.argv[1])
    instance = DagsterInstance.local_temp(
        str(state), overrides={"telemetry": {"enabled": False}, "python_logs": {}}
    )
    serve(Dagster(instance))
    sys.stdout.flush()
    os._exit(0)  # skips Dagster's shutdown


if __name__ == "__main__":
    main()
