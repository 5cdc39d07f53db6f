"""`comparison.json`: champion and challenger on the same held-out samples; and the gate's verdict.

docs/operations.md describes the file, section "What the gate compares".
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from orchestrations.configuration.checks import MetricName
from orchestrations.contracts.base import Contract
from orchestrations.contracts.run_states import GateVerdict

SLICES_LIMIT = 500
SHOWN_SLICES = 50
"""So many slices are kept in a run's record."""
SAMPLES_LIMIT = 100_000_000
_TOLERANCE = 1e-6

_Number = Annotated[int, Field(ge=0, le=SAMPLES_LIMIT)]
SliceName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]
"""A part of the samples, such as `label:7`. What is before the colon is its group."""


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Counts(_Part):
    """How many samples each of the two models gets right."""

    both_right: _Number
    only_champion: _Number
    only_challenger: _Number
    both_wrong: _Number

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.both_right + self.only_champion + self.only_challenger + self.both_wrong

    @property
    def difference(self) -> float:
        """The sum over the samples of challenger minus champion, where right is 1."""
        return self.only_challenger - self.only_champion

    @property
    def squares(self) -> float:
        """The sum of the squares of these differences."""
        return self.only_challenger + self.only_champion


class Scores(_Part):
    """The scores of each sample: sums over challenger minus champion."""

    samples: _Number
    difference: float
    squares: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _is_possible(self) -> Scores:
        # Cauchy-Schwarz: no numbers have a larger sum.
        if self.difference**2 > self.samples * self.squares * (1 + _TOLERANCE):
            raise ValueError("no samples have this difference and these squares")
        return self


def _kind_of(part: Any) -> str:
    names = part if isinstance(part, dict) else vars(part) if isinstance(part, BaseModel) else ()
    return "scores" if "squares" in names else "counts"


Tally = Annotated[
    Annotated[Counts, Tag("counts")] | Annotated[Scores, Tag("scores")], Discriminator(_kind_of)
]


class Comparison(_Part):
    """The content of `comparison.json`. The slices of a group are the parts of the whole."""

    metric: MetricName
    """What is compared. If it is the gate's metric, `metrics.json` must say the same."""
    whole: Tally
    slices: Annotated[dict[SliceName, Tally], Field(max_length=SLICES_LIMIT)] = {}

    @model_validator(mode="after")
    def _adds_up(self) -> Comparison:
        groups: dict[str, list[Counts | Scores]] = defaultdict(list)
        for name, part in self.slices.items():
            if type(part) is not type(self.whole):
                raise ValueError(f"slice {name!r} is not of the kind of whole")
            for key in (
                "samples",
                "squares",
                *(Counts.model_fields if isinstance(part, Counts) else ()),
            ):
                if getattr(part, key) > getattr(self.whole, key) * (1 + _TOLERANCE):
                    raise ValueError(f"slice {name!r} is more than whole: its {key}")
            group, colon, _ = name.partition(":")
            if colon:
                groups[group].append(part)
        # Sums of floating-point numbers depend on their order.
        slack = _TOLERANCE * math.sqrt(self.whole.samples * self.whole.squares)
        for group, parts in groups.items():
            for key in type(self.whole).model_fields:
                total, wanted = sum(getattr(it, key) for it in parts), getattr(self.whole, key)
                allowed = 0.0 if isinstance(wanted, int) else slack
                if abs(total - wanted) > allowed:
                    raise ValueError(
                        f"the slices {group}: do not add up: their {key} is {total:.10g}, and "
                        f"that of whole is {wanted:.10g}"
                    )
        return self


class SliceChange(BaseModel):
    """How much better the challenger is on a slice."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    name: str
    samples: int
    lead: float
    """In the goal's direction; negative: it fell."""
    error: float
    """The standard error of `lead`."""
    p: float
    """The probability of a change so large in this direction if both models are equal."""
    fall_at_most: float | None = None
    """The limit of its rule in `gate.slices`; None without a rule."""
    outcome: Literal["kept", "small", "fell"] = "kept"
    """`fell`: beyond its limit. `small`: that too, but it has too few samples to count."""


class Judged(Contract):
    """The verdict of the gate by a comparison, with its numbers."""

    verdict: GateVerdict
    message: str
    """A sentence with the numbers that decided."""
    metric: str
    unit: Literal["points", "score"]
    """Points are hundredths of the samples; a score has the metric's unit."""
    samples: int
    lead: float
    error: float
    p: float
    """The probability of a lead so large if the challenger is no better."""
    slices: tuple[SliceChange, ...] = ()
    """The worst ones come first."""
    more_slices: int = 0
    """How many are left out, which are better than these."""
