"""Section `parameters` of `pipeline.yml`: inputs of `job.yml` that a request for a run can set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from orchestrations.configuration.section import Section

# The names and literal values of a job's inputs:
# https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-command#job-inputs
ParameterName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
TEXT_LIMIT_CHARACTERS = 100
Value = bool | int | float | Annotated[str, StringConstraints(max_length=TEXT_LIMIT_CHARACTERS)]
PARAMETERS_LIMIT = 20
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "text": str,
}


class Parameter(Section):
    """A value that a request for a run can set; `job.yml` reads it as `${{inputs.<name>}}`.

    The key is its name. It is a part of the run's identity: a request with other values trains on
    the same content again. The model's lineage has the values.
    """

    type: Literal["integer", "number", "boolean", "text"]
    """The type of the value."""
    default: Value
    """The value of runs whose request does not set it, and of those that landed data starts."""
    minimum: float | None = None
    """The least value of a number."""
    maximum: float | None = None
    """The greatest value of a number."""
    values: list[Value] | None = Field(default=None, min_length=1)
    """The only values, if there are few."""

    @model_validator(mode="after")
    def _takes_its_default(self) -> Parameter:
        has_limits = self.minimum is not None or self.maximum is not None
        if has_limits and self.type in ("boolean", "text"):
            raise ValueError(f"minimum and maximum are limits of numbers, not of type {self.type}")
        problem = self.refuses(self.default)
        if problem is not None:
            raise ValueError(f"the default {problem}")
        return self

    def refuses(self, value: Value) -> str | None:
        """Why it does not take a value; None if it does."""
        is_of_type = isinstance(value, _TYPES[self.type])
        if not is_of_type or (isinstance(value, bool) and self.type != "boolean"):
            return f"{value!r} is not of type {self.type}"
        if self.values is not None and value not in self.values:
            return f"{value!r} is none of {', '.join(map(repr, self.values))}"
        if isinstance(value, (int, float)):
            if self.minimum is not None and value < self.minimum:
                return f"{value!r} is less than {self.minimum:g}"
            if self.maximum is not None and value > self.maximum:
                return f"{value!r} is more than {self.maximum:g}"
        return None


def problem_with(
    declared: Mapping[str, Parameter], values: Mapping[str, Value]
) -> tuple[str, str] | None:
    """The first given value that does not fit: its name, and why; None if all do."""
    for name, value in values.items():
        if name not in declared:
            return name, f"there is no such parameter; there are: {', '.join(declared) or 'none'}"
        problem = declared[name].refuses(value)
        if problem is not None:
            return name, problem
    return None


def fill_defaults(
    declared: Mapping[str, Parameter], values: Mapping[str, Value]
) -> dict[str, Value]:
    """The value of each declared parameter."""
    return {name: values.get(name, each.default) for name, each in declared.items()}
