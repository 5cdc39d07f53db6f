"""Filters of event subscriptions. Pure: no I/O.

Source: https://learn.microsoft.com/azure/event-grid/event-filtering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from localazure.eventgrid.schemas import Event, Schema

# "Limitations" of the page above.
MAX_ADVANCED_FILTERS = 25
MAX_VALUES = 25


@dataclass(frozen=True)
class Operator:
    """An operator of advanced filters.

    Attributes:
        test: whether one value of the event matches one operand.
        negated: the event matches if no value matches any operand. An absent key matches, too.
        tests_presence: it tests whether the key is present: an array is one value for it.
    """

    test: Callable[[Any, Any], bool]
    negated: bool = False
    tests_presence: bool = False


def _number(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: (
        isinstance(value, int | float) and not isinstance(value, bool) and test(value, operand)
    )


def _string(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    # Operands are in lower case: strings are compared case-insensitively.
    return lambda value, operand: isinstance(value, str) and test(value.lower(), operand)


_within = _number(lambda value, ends: ends[0] <= value <= ends[1])
_equal = _number(lambda value, operand: value == operand)
_same = _string(lambda value, operand: value == operand)
_begins = _string(str.startswith)
_ends = _string(str.endswith)
_contains = _string(lambda value, operand: operand in value)

OPERATORS: Mapping[str, Operator] = {
    "NumberIn": Operator(_equal),
    "NumberNotIn": Operator(_equal, negated=True),
    "NumberLessThan": Operator(_number(lambda value, operand: value < operand)),
    "NumberLessThanOrEquals": Operator(_number(lambda value, operand: value <= operand)),
    "NumberGreaterThan": Operator(_number(lambda value, operand: value > operand)),
    "NumberGreaterThanOrEquals": Operator(_number(lambda value, operand: value >= operand)),
    "NumberInRange": Operator(_within),
    "NumberNotInRange": Operator(_within, negated=True),
    "BoolEquals": Operator(lambda value, operand: value is operand),
    "StringIn": Operator(_same),
    "StringNotIn": Operator(_same, negated=True),
    "StringBeginsWith": Operator(_begins),
    "StringNotBeginsWith": Operator(_begins, negated=True),
    "StringEndsWith": Operator(_ends),
    "StringNotEndsWith": Operator(_ends, negated=True),
    "StringContains": Operator(_contains),
    "StringNotContains": Operator(_contains, negated=True),
    "IsNullOrUndefined": Operator(
        lambda value, _: value is not None, negated=True, tests_presence=True
    ),
    "IsNotNull": Operator(lambda value, _: value is not None, tests_presence=True),
}


@dataclass(frozen=True)
class AdvancedFilter:
    """One condition: the value of `key` matches any of `operands` (none of them, if negated)."""

    operator: Operator
    key: str
    operands: tuple[Any, ...]

    def matches(self, event: Event, *, arrays: bool) -> bool:
        """Whether the event meets the condition. Of an array, any element may match."""
        value = lookup(event, self.key)
        values = [value]
        if isinstance(value, list) and not self.operator.tests_presence:
            values = value if arrays else []
        met = any(
            self.operator.test(value, operand) for value in values for operand in self.operands
        )
        return met != self.operator.negated


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The filter of a subscription: an event must meet all conditions."""

    event_types: frozenset[str] | None = None
    subject_begins_with: str = ""
    subject_ends_with: str = ""
    case_sensitive: bool = False
    advanced: tuple[AdvancedFilter, ...] = ()
    arrays: bool = False

    def matches(self, event: Event, schema: Schema) -> bool:
        """Whether the event passes the filter.

        Args:
            event: as it was published.
            schema: of the event.
        """
        event_type = event["type" if schema is Schema.CLOUD_EVENTS else "eventType"]
        if self.event_types is not None and event_type.lower() not in self.event_types:
            return False
        subject: str = event.get("subject") or ""
        begin, end = self.subject_begins_with, self.subject_ends_with
        if not self.case_sensitive:
            subject, begin, end = subject.lower(), begin.lower(), end.lower()
        return (
            subject.startswith(begin)
            and subject.endswith(end)
            and all(condition.matches(event, arrays=self.arrays) for condition in self.advanced)
        )


def lookup(event: Event, key: str) -> Any:
    """The value of a dotted key, None if absent. Only the first level is case-insensitive."""
    first, *rest = key.split(".")
    value: Any = next((v for name, v in event.items() if name.lower() == first.lower()), None)
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    return value
