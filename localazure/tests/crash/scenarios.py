"""The orchestrations, the steps of their client, and their expected results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Scenario:
    """An orchestration of `app/function_app.py`.

    Attributes:
        output: the expected output.
        steps: the client's steps, in order: operations, or names of events to raise.
            MEND rewinds the instance each time it fails, until it has completed.
        shared_additions: how often the instance adds 1 to the entity `@counter@all`.
        status: the expected final status.
    """

    output: Any
    steps: tuple[str, ...] = ()
    shared_additions: int = 0
    status: str = "Completed"


MEND: Final = "rewind"
OPERATIONS: Final = frozenset({"suspend", "resume", "terminate"})
PAYLOAD: Final = {"by": "client"}

# The SDK passes the parsed JSON of an event's payload to the orchestrator.
SCENARIOS: Final[dict[str, Scenario]] = {
    "chain": Scenario(5),
    "fan_out": Scenario([[1, 2, 3, 4, 5, 6, 7, 8], 37]),
    "timers": Scenario(2),
    "approval": Scenario([PAYLOAD, PAYLOAD, 2], ("first", "second")),
    "suspended": Scenario([PAYLOAD, 2], ("suspend", "go", "resume")),
    "counting": Scenario([7, 7], shared_additions=5),
    "family": Scenario([3, 4, 2, "failed"]),
    "again": Scenario(4, shared_additions=4),
    "retried": Scenario([2, "failed"]),
    "mended": Scenario([2, 3], (MEND,)),
    "mixed": Scenario([2, 7, 7, PAYLOAD], ("mixed",)),
    "stopped": Scenario("enough", ("terminate",), status="Terminated"),
}
