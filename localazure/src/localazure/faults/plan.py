"""The plan of faults: derives decisions from a seed. Pure: no I/O, clock or randomness.

A decision depends on the seed, the rule, the operation and the number of earlier requests for this
operation. A part that repeats the same operations in the same order gets the same faults.
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
    """The operation is delayed, so later operations may overtake it."""
    ERROR = "error"
    """The operation is refused with an error of the service."""
    RESET = "reset"
    """The connection is closed before the operation is executed."""
    LOST_ANSWER = "lostAnswer"
    """The operation is executed; then the connection is closed without a response."""
    HALF_ANSWER = "halfAnswer"
    """The operation is executed; then the connection is closed within the response's body."""
    DUPLICATE = "duplicate"
    """An event, or a signal to an entity, is delivered twice."""
    LOSS = "loss"
    """An event is never delivered, against the service's guarantee."""
    REPEAT = "repeat"
    """An activity that has succeeded is run again, as after a lost worker."""
    PREEMPTION = "preemption"
    """A low-priority node is removed while a job runs on it."""
    SHORTAGE = "shortage"
    """There is no capacity for new nodes of a VM size, although the quota allows them."""
    CLOCK_SKEW = "clockSkew"
    """The part's clock is wrong when it checks tokens and signatures and dates its responses."""


OF_MESSAGES: Final = frozenset({Fault.LATENCY, Fault.ERROR, Fault.RESET, Fault.LOST_ANSWER})
OF_REQUESTS: Final = OF_MESSAGES | {Fault.HALF_ANSWER}
OF_DELIVERIES: Final = OF_REQUESTS | {Fault.DUPLICATE, Fault.LOSS}
OF_ACTIVITIES: Final = frozenset({Fault.REPEAT})
OF_SIGNALS: Final = frozenset({Fault.DUPLICATE})
OF_NODES: Final = frozenset({Fault.PREEMPTION})
OF_ALLOCATIONS: Final = frozenset({Fault.SHORTAGE})
OF_CLOCKS: Final = frozenset({Fault.CLOCK_SKEW})
FAULTS: Final = {
    Part.STORAGE: OF_REQUESTS | OF_CLOCKS,
    Part.SERVICE_BUS: OF_MESSAGES | OF_CLOCKS,
    Part.EVENT_GRID: OF_DELIVERIES | OF_CLOCKS,
    Part.AZURE_ML: OF_REQUESTS | OF_NODES | OF_ALLOCATIONS | OF_CLOCKS,
    Part.FUNCTIONS: OF_ACTIVITIES | OF_SIGNALS,
}
"""The faults that each part can have."""


CLOCK: Final = "clock"
"""The name of the operation of `clockSkew`."""


class Rule(ConfigurationModel):
    """One kind of fault of some operations of a part."""

    part: Part
    operation: str = "*"
    """A pattern for the operations in `localazure/docs/faults.md`; `*` matches slashes, too."""
    fault: Fault
    probability: _Probability = 1.0
    seconds: float = 0.0
    """The delay of `latency`; a job's run time before `preemption`; the lead of a skewed clock."""
    status: Annotated[int, Field(ge=400, le=599)] = 503
    """The HTTP status of `error`, if the operation is an HTTP request."""
    retry_after_seconds: Annotated[int, Field(ge=0)] | None = None
    from_seconds: _Seconds = 0.0
    """When the rule starts to apply, in seconds after the plan was set."""
    for_seconds: _Seconds | None = None
    """How long the rule applies; None: as long as the plan. With `reset`, this is an outage."""
    first_times: Annotated[int, Field(ge=1)] | None = None
    """How many of the first requests for each operation the rule applies to; None: to all."""

    @model_validator(mode="after")
    def _known_to_the_part(self) -> Self:
        if self.fault not in FAULTS[self.part]:
            kinds = ", ".join(sorted(FAULTS[self.part]))
            raise error_at(("fault",), f"the part {self.part} has no such fault; it has {kinds}")
        if self.seconds < 0 and self.fault is not Fault.CLOCK_SKEW:
            raise error_at(("seconds",), "only clockSkew may be negative")
        return self

    def holds(self, part: Part, operation: str, number: int, elapsed_seconds: float) -> bool:
        """Whether the rule applies to an operation; see `Plan.decide` for the arguments."""
        if part is not self.part or not fnmatchcase(operation, self.operation):
            return False
        if self.first_times is not None and number >= self.first_times:
            return False
        past = elapsed_seconds - self.from_seconds
        return past >= 0 and (self.for_seconds is None or past < self.for_seconds)


class Plan(ConfigurationModel):
    """All rules. The first rule that applies and is drawn decides."""

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
        """Return the rule by which an operation fails; None if it does not fail.

        Args:
            part: the part that executes the operation.
            operation: the operation that is about to start.
            number: the number of earlier requests for this operation.
            elapsed_seconds: seconds since the plan was set.
            faults: the faults that the operation can have.
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
        """Return by how many seconds the part's clock is ahead."""
        return sum(
            rule.seconds
            for rule in self.rules
            if rule.fault is Fault.CLOCK_SKEW and rule.holds(part, CLOCK, 0, elapsed_seconds)
        )


def moderate(seed: int) -> Plan:
    """A plan that a robust app survives: each service is sometimes slow, busy or disconnected."""

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
            # Rare: messages that the connection had locked then wait until their locks expire.
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
    """Return a number in [0, 1) that depends only on the arguments."""
    digest = hashlib.sha256(f"{seed}/{rule}/{operation}/{number}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
