"""The retries of activities, alone and in parallel."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest
from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.base import PATIENT, QUICK, Contract, Done
from orchestrations.contracts.datasets import DiscardParts
from orchestrations.contracts.training import CancelJob
from orchestrations.errors import JobRejected, LandfallError
from orchestrations.platform.activities import Pending, call, wait_for_all
from tests.unit.orchestrations.driver import Driver, answered_by

DISCARD = DiscardParts(pipeline="digits", freeze="f")
CANCEL = CancelJob(job="j")
TRAINING = timedelta(hours=2)


class World:
    """Activities that fail until a second after the start."""

    def __init__(self, **fails_until: float) -> None:
        self.fails_until = fails_until
        self.calls: list[tuple[str, float]] = []
        self.refusal: LandfallError | None = None

    def run(self, orchestrator: Any) -> Any:
        self.driver = Driver(
            activities=answered_by(self._answer), orchestrators={"orchestrator": orchestrator}
        )
        self.driver.latency = lambda: 0.0
        instance = self.driver.start("orchestrator", "i", None)
        self.driver.run()
        assert instance.error is None
        return instance.output

    def _answer(self, name: str, _: Any) -> Contract:
        self.calls.append((name, self.driver.seconds))
        if self.driver.seconds < self.fails_until.get(name, 0):
            raise ConnectionError("out of reach")
        if self.refusal is not None:
            raise self.refusal
        return Done()

    def times(self, name: str) -> list[float]:
        return [seconds for called, seconds in self.calls if called == name]


def discard(context: DurableOrchestrationContext) -> Generator[Any, Any, str]:
    try:
        yield from call(context, DISCARD)
    except LandfallError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def test_a_step_pauses_from_seconds_to_minutes_and_outlasts_half_an_hour() -> None:
    world = World(discard_parts=1_800)
    assert world.run(discard) == "done"
    assert world.times("discard_parts") == list(itertools.accumulate((0, *PATIENT)))
    assert 1_800 < sum(PATIENT) < 3_600
    assert PATIENT[0] == 5


def test_it_gives_up_with_the_last_error_and_a_refusal_is_not_tried_again() -> None:
    world = World(discard_parts=1e9)
    assert world.run(discard).endswith("ConnectionError: out of reach")
    assert len(world.calls) == len(PATIENT) + 1
    world = World()
    world.refusal = JobRejected("no")
    assert world.run(discard) == "JobRejected: no"
    assert len(world.calls) == 1


def test_what_is_asked_again_anyway_is_tried_twice() -> None:
    def cancel(context: DurableOrchestrationContext) -> Generator[Any, Any, str]:
        with pytest.raises(LandfallError):
            yield from call(context, CANCEL)
        return "over"

    world = World(cancel_job=1e9)
    assert world.run(cancel) == "over"
    assert world.times("cancel_job") == [0, *QUICK]


def test_parallel_steps_are_tried_again_each_by_itself_beside_a_task() -> None:
    """As the record of a batch, beside the training on it."""

    def landing(context: DurableOrchestrationContext) -> Generator[Any, Any, str]:
        discarded, cancelled = Pending(context, DISCARD), Pending(context, CANCEL)
        training = context.create_timer(context.current_utc_datetime + TRAINING)
        yield from wait_for_all(context, discarded, cancelled, training)
        yield from discarded.result()
        with pytest.raises(LandfallError):
            yield from cancelled.result()
        return "over"

    world = World(discard_parts=60, cancel_job=1e9)
    assert world.run(landing) == "over"
    assert world.times("discard_parts") == [0, 5, 20, 65]
    assert world.times("cancel_job") == [0, 5]
    assert world.driver.seconds == TRAINING.total_seconds()
