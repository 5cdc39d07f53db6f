"""The plan of faults: from a seed to decisions. Pure: no I/O, no clock, no chance.

A decision depends on the seed, the rule, the operation and how often that operation was asked for:
a part that does the same things in the same order meets the same faults.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from localazure.configuration_file import ConfigurationModel, error_at

_Probability = Annotated[float, Field(ge=0, le=1)]
_Seconds = Annotated[float, Field(ge=0)]


class Part(StrEnum):
    """The parts that have faults."""

    STORAGE = "storage"
    SERVICE_BUS = "servicebus"
    EVENT_GRID = "eventgrid"
    AZURE_ML = "machinelearning"
    FUNCTIONS = "functions"


class Fault(StrEnum):
    """A kind of fault."""

    LATENCY = "latency"
    """The operation begins later, and so perhaps after others that came later."""
    ERROR = "error"
    """It is refused with an error of the service, and does not take place."""
    RESET = "reset"
    """The connection ends before it takes place."""
    LOST_ANSWER = "lostAnswer"
    """It takes place; then the connection ends, and no answer comes."""
    HALF_ANSWER = "halfAnswer"
    """It takes place; then the connection ends within the answer's body."""
    DUPLICATE = "duplicate"
    """An event, or a signal to an entity, is delivered twice."""
    LOSS = "loss"
    """An event is never delivered, as by a service that broke its promise."""
    REPEAT = "repeat"
    """An activity that has succeeded is run once more, as after a lost worker."""
    PREEMPTION = "preemption"
    """A low-priority node is taken away while a job runs on it."""
    SHORTAGE = "shortage"
    """There is no capacity for new nodes of a VM size, whatever the quota allows."""
    CLOCK_SKEW = "clockSkew"
    """The part's clock is wrong: for the times of tokens and signatures, and of its answers."""


OF_MESSAGES: Final = frozenset({Fault.LATENCY, Fault.ERROR, Fault.RESET, Fault.LOST_ANSWER})
OF_REQUESTS: Final = OF_MESSAGES | {Fault.HALF_ANSWER}
OF_DELIVERIES: Final = OF_REQUESTS | {Fault.DUPLICATE, Fault.LOSS}
OF_ACTIVITIES: Final = frozenset({Fault.REPEAT})
OF_SIGNALS: Final = frozenset({Fault.DUPLICATE})
OF_NODES: Final = frozenset({Fault.PREEMPTION})
OF_ALLOCATIONS: Final = frozenset({Fault.SHORTAGE})
_OF_CLOCKS: Final = frozenset({Fault.CLOCK_SKEW})
FAULTS: Final = {
    Part.STORAGE: OF_REQUESTS | _OF_CLOCKS,
    Part.SERVICE_BUS: OF_MESSAGES | _OF_CLOCKS,
    Part.EVENT_GRID: OF_DELIVERIES | _OF_CLOCKS,
    Part.AZURE_ML: OF_REQUESTS | OF_NODES | OF_ALLOCATIONS | _OF_CLOCKS,
    Part.FUNCTIONS: OF_ACTIVITIES | OF_SIGNALS,
}
"""The faults that each part can have."""


CLOCK: Final = "clock"
"""The operation of `clockSkew`."""


class Rule(ConfigurationModel):
    """Some operations of a part fail in one way."""

    part: Part
    operation: str = "*"
    """A pattern of `localazure/docs/faults.md`'s operations; `*` matches slashes, too."""
    fault: Fault
    probability: _Probability = 1.0
    seconds: float = 0.0
    """Of latency; of a job's run before its node is preempted; by which a clock is ahead."""
    status: Annotated[int, Field(ge=400, le=599)] = 503
    """Of an error, where the operation is a request over HTTP."""
    retry_after_seconds: Annotated[int, Field(ge=0)] | None = None
    from_seconds: _Seconds = 0.0
    """After the plan came into force."""
    for_seconds: _Seconds | None = None
    """How long the rule holds; None: until the plan ends. A `reset` with this is an outage."""
    first_times: Annotated[int, Field(ge=1)] | None = None
    """Only the first so many times that each operation is asked for; None: every time."""

    @model_validator(mode="after")
    def _known_to_the_part(self) -> Self:
        if self.fault not in FAULTS[self.part]:
            known = ", ".join(sorted(FAULTS[self.part]))
            raise error_at(("fault",), f"the part {self.part} has no such fault; it has {known}")
        if self.seconds < 0 and self.fault is not Fault.CLOCK_SKEW:
            raise error_at(("seconds",), "only clockSkew may be negative")
        return self

    def holds(self, part: Part, operation: str, number: int, elapsed_seconds: float) -> bool:
        """Whether it is about an operation, see `Plan.decide` for the arguments."""
        if part is not self.part or not fnmatchcase(operation, self.operation):
            return False
        if self.first_times is not None and number >= self.first_times:
            return False
        past = elapsed_seconds - self.from_seconds
        return past >= 0 and (self.for_seconds is None or past < self.for_seconds)


class Plan(ConfigurationModel):
    """All rules; the first one that decides for a fault wins."""

    seed: int
    rules: tuple[Rule, ...]

    def decide(
        self,
        part: Part,
        operation: str,
        number: int,
        elapsed_seconds: float,
        faults: Collection[Fault],
    ) -> Rule | None:
        """The rule by which an operation fails, None if it does not.

        Args:
            part: that asks.
            operation: what it is about to do.
            number: how often it was asked for this operation before.
            elapsed_seconds: since the plan came into force.
            faults: that the operation can have.
        """
        for index, rule in enumerate(self.rules):
            if (
                rule.fault in faults
                and rule.holds(part, operation, number, elapsed_seconds)
                and _draw(self.seed, index, operation, number) < rule.probability
            ):
                return rule
        return None

    def clock_skew_seconds(self, part: Part, elapsed_seconds: float) -> float:
        """How far the part's clock is ahead."""
        return sum(
            rule.seconds
            for rule in self.rules
            if rule.fault is Fault.CLOCK_SKEW and rule.holds(part, CLOCK, 0, elapsed_seconds)
        )


def moderate(seed: int) -> Plan:
    """A plan that a sound app survives: every service is slow, busy or cut off now and then."""

    def rule(part: Part, fault: Fault, probability: float, **more: object) -> Rule:
        values = {"part": part, "fault": fault, "probability": probability, **more}
        return Rule.model_validate(values)

    return Plan(
        seed=seed,
        rules=(
            rule(Part.STORAGE, Fault.ERROR, 0.02, status=503, retry_after_seconds=1),
            rule(Part.STORAGE, Fault.LATENCY, 0.05, seconds=0.3),
            rule(Part.STORAGE, Fault.LOST_ANSWER, 0.01),
            rule(Part.SERVICE_BUS, Fault.LATENCY, 0.05, seconds=0.3),
            # Each costs what its connection had locked a wait for the end of the locks.
            rule(Part.SERVICE_BUS, Fault.LOST_ANSWER, 0.002),
            rule(Part.SERVICE_BUS, Fault.ERROR, 0.02, operation="send/*"),
            rule(Part.EVENT_GRID, Fault.DUPLICATE, 0.10, operation="deliver/*"),
            rule(Part.EVENT_GRID, Fault.LATENCY, 0.10, operation="deliver/*", seconds=1.0),
            rule(Part.EVENT_GRID, Fault.ERROR, 0.05, operation="publish/*", status=503),
            rule(Part.AZURE_ML, Fault.ERROR, 0.05, status=429, retry_after_seconds=1),
            rule(Part.AZURE_ML, Fault.LOST_ANSWER, 0.02),
            rule(Part.FUNCTIONS, Fault.REPEAT, 0.10),
            rule(Part.AZURE_ML, Fault.SHORTAGE, 0.10, operation="allocation/*"),
            rule(Part.AZURE_ML, Fault.PREEMPTION, 0.10, seconds=2.0),
            rule(Part.FUNCTIONS, Fault.DUPLICATE, 0.10, operation="signal/*"),
        ),
    )


def _draw(seed: int, rule: int, operation: str, number: int) -> float:
    """A number in [0, 1) that is the same for the same arguments."""
    digest = hashlib.sha256(f"{seed}/{rule}/{operation}/{number}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
