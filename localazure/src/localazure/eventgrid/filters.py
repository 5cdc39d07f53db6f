"""The `filter` of an event subscription in the form of ARM and `event-grid.json`. Pure: no I/O.

Source: https://learn.microsoft.com/azure/event-grid/event-filtering.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StringConstraints, model_validator

from localazure import limits
from localazure.configuration_file import ConfigurationModel, error_at
from localazure.eventgrid.schemas import Event, Schema

# From the section "Limitations" of the page above.
MAX_ADVANCED_FILTERS = limits.EVENT_GRID_ADVANCED_FILTERS.value
MAX_VALUES = 25


def _number(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: (
        isinstance(value, int | float) and not isinstance(value, bool) and test(value, operand)
    )


def _string(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    # Operands are in lower case: strings are compared case-insensitively.
    return lambda value, operand: isinstance(value, str) and test(value.lower(), operand)


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "NumberIn": _number(operator.eq),
    "NumberLessThan": _number(operator.lt),
    "NumberLessThanOrEquals": _number(operator.le),
    "NumberGreaterThan": _number(operator.gt),
    "NumberGreaterThanOrEquals": _number(operator.ge),
    "NumberInRange": _number(lambda value, ends: ends[0] <= value <= ends[1]),
    "BoolEquals": lambda value, operand: value is operand,
    "StringIn": _string(operator.eq),
    "StringBeginsWith": _string(str.startswith),
    "StringEndsWith": _string(str.endswith),
    "StringContains": _string(operator.contains),
    "IsNullOrUndefined": lambda value, _: value is None,
    "IsNotNull": lambda value, _: value is not None,
}
"""By operator: whether an event's value matches an operand. Other operators, Not..., negate one."""


Text = Annotated[str, StringConstraints(min_length=1)]
_LowerCase = Annotated[Text, AfterValidator(str.lower)]
_Number = Annotated[float, Field(strict=True)]


class _Condition(ConfigurationModel):
    key: Text


class _NumberCondition(_Condition):
    operator_type: Literal[
        "NumberLessThan",
        "NumberLessThanOrEquals",
        "NumberGreaterThan",
        "NumberGreaterThanOrEquals",
    ]
    value: _Number


class _NumbersCondition(_Condition):
    operator_type: Literal["NumberIn", "NumberNotIn"]
    values: tuple[_Number, ...]


def _low_to_high(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("must be [low, high]")
    return value


class _RangesCondition(_Condition):
    operator_type: Literal["NumberInRange", "NumberNotInRange"]
    values: tuple[Annotated[tuple[_Number, _Number], AfterValidator(_low_to_high)], ...]


class _BoolCondition(_Condition):
    operator_type: Literal["BoolEquals"]
    value: StrictBool


class _StringsCondition(_Condition):
    operator_type: Literal[
        "StringIn",
        "StringNotIn",
        "StringBeginsWith",
        "StringNotBeginsWith",
        "StringEndsWith",
        "StringNotEndsWith",
        "StringContains",
        "StringNotContains",
    ]
    values: tuple[_LowerCase, ...]


class _PresenceCondition(_Condition):
    operator_type: Literal["IsNullOrUndefined", "IsNotNull"]


AdvancedFilter = Annotated[
    _NumberCondition
    | _NumbersCondition
    | _RangesCondition
    | _BoolCondition
    | _StringsCondition
    | _PresenceCondition,
    Field(discriminator="operator_type"),
]


def operands(condition: AdvancedFilter) -> tuple[Any, ...]:
    """The condition's operands."""
    match condition:
        case _NumberCondition(value=value) | _BoolCondition(value=value):
            return (value,)
        case _PresenceCondition():
            return (None,)
        case _:
            return condition.values


def meets(event: Event, condition: AdvancedFilter, *, arrays: bool) -> bool:
    """Whether the value of the condition's key matches any operand (none, if it is negated).

    Args:
        event: the event as published.
        condition: a condition of a filter.
        arrays: whether any element of an array may match; otherwise an array does not match.
    """
    name = condition.operator_type
    # A negated operator requires that no operand matches, so an absent key meets it.
    is_negated = name not in _TESTS
    test = _TESTS[name.replace("Not", "") if is_negated else name]
    value = lookup(event, condition.key)
    values = [value]
    if isinstance(value, list) and not isinstance(condition, _PresenceCondition):
        values = value if arrays else []
    met = any(test(value, operand) for value in values for operand in operands(condition))
    return met != is_negated


class Filter(ConfigurationModel):
    """A filter. An event must meet all its conditions."""

    included_event_types: tuple[_LowerCase, ...] | None = None
    subject_begins_with: str = ""
    subject_ends_with: str = ""
    is_subject_case_sensitive: StrictBool = False
    enable_advanced_filtering_on_arrays: StrictBool = False
    advanced_filters: tuple[AdvancedFilter, ...] = ()

    @model_validator(mode="after")
    def _check_limits(self) -> Filter:
        filters = self.advanced_filters
        values = sum(len(operands(item)) for item in filters)
        if len(filters) > MAX_ADVANCED_FILTERS or values > MAX_VALUES:
            raise error_at(
                ("advancedFilters",),
                f"must be at most {MAX_ADVANCED_FILTERS} filters with {MAX_VALUES} values in all",
            )
        return self

    def matches(self, event: Event, schema: Schema) -> bool:
        """Whether the event passes the filter.

        Args:
            event: the event as published.
            schema: the event's schema.
        """
        event_type = event["type" if schema is Schema.CLOUD_EVENTS else "eventType"]
        types = self.included_event_types
        if types is not None and event_type.lower() not in types:
            return False
        subject: str = event.get("subject") or ""
        begin, end = self.subject_begins_with, self.subject_ends_with
        if not self.is_subject_case_sensitive:
            subject, begin, end = subject.lower(), begin.lower(), end.lower()
        arrays = self.enable_advanced_filtering_on_arrays
        return (
            subject.startswith(begin)
            and subject.endswith(end)
            and all(meets(event, condition, arrays=arrays) for condition in self.advanced_filters)
        )


def lookup(event: Event, key: str) -> Any:
    """Return the value of a dotted key, if any. Only its first level is case-insensitive."""
    first, *rest = key.split(".")
    value: Any = next((v for name, v in event.items() if name.lower() == first.lower()), None)
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    return value
