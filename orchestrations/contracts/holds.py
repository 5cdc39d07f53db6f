"""Why a batch is held, and what each reason means: others read this table.

The type checker refuses a reason without a row (`assert_never`); tests/contract/test_states.py
compares the table with docs/operations.md, and tests/contract/test_simulated.py wants a story.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

HoldReason = Literal["shrunk", "data-changed", "check-failed", "little-change", "paused"]
HoldEnd = Literal["release", "resumption", "growth"]
MEND_OR_RELEASE = "mend the data, or release the batch if it is meant so"
"""What ends a hold of a failed check, for people."""


@dataclass(frozen=True, kw_only=True)
class HoldRule:
    """What a reason of a hold means."""

    ended_by: HoldEnd
    """What lets the batch, or the next one, be trained on: a person releases it, a person resumes
    the pipeline, or more data lands. A release ends each of them."""
    alerts: bool
    state: Literal["needs-a-human", "waiting", "paused"]
    """The state of the pipeline."""


def rule_of_hold(reason: HoldReason) -> HoldRule:
    """What a reason of a hold means; `landing.decisions.decide` gives reason and sentence."""
    match reason:
        case "shrunk" | "data-changed" | "check-failed":
            return HoldRule(ended_by="release", alerts=True, state="needs-a-human")
        case "little-change":
            return HoldRule(ended_by="growth", alerts=False, state="waiting")
        case "paused":
            return HoldRule(ended_by="resumption", alerts=False, state="paused")
        case _:
            assert_never(reason)
