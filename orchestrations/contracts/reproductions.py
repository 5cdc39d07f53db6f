"""A reproduction: a run that repeats the training of a registered model, and compares the two."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrations.contracts.base import ActivityRequest, Contract

TOLERANCE = 0.001
"""A thousandth of the greater of two values: the default."""


class Reproduces(Contract):
    """What a run reproduces: a part of its request."""

    name: str
    version: str
    run: str
    """The run that registered this version."""
    champion: str | None
    """The version that it was compared with, which the job gets again."""
    tolerance: float = Field(default=TOLERANCE, ge=0, allow_inf_nan=False)
    """By how much the gate's metrics may differ, relative to the greater of two values."""
    number: int = Field(ge=1)
    """The how many-th reproduction of this version it is."""

    @property
    def model(self) -> str:
        """Name and version."""
        return f"{self.name}:{self.version}"


class Difference(Contract):
    """Something that differs between a training and its reproduction."""

    what: str
    """Such as `environment`, `metric accuracy`, `file weights.pt`."""
    original: str | None
    """None: there was none."""
    again: str | None


class ReproductionFacts(Contract):
    """What differs between two trainings."""

    files: int
    """How many files, and keys of JSON files, the model has."""
    files_differ: bool
    metrics: dict[str, tuple[float | None, float | None]]
    """The requested ones: of the original, and now; None: there is none."""
    differences: tuple[Difference, ...]
    """Settings, then metrics, then files and keys."""
    more: int
    """How many differences are left out."""


class CompareReproduction(ActivityRequest[ReproductionFacts]):
    """Input of `compare_reproduction`."""

    pipeline: str
    run: str
    reproduces: Reproduces
    metrics: list[str]


class Reproduction(Contract):
    """The answer of a reproduction; a part of the run's record."""

    reproduces: Reproduces
    equal: Literal["bits", "metrics"] | None
    """`bits`: all files of the model. `metrics`: those of the gate, within the tolerance."""
    message: str
    differences: tuple[Difference, ...] = ()
    more: int = 0
    """How many differences are left out."""
