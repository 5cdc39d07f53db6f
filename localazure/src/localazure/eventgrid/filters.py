"""Which events a subscription wants. Pure: no I/O.

Source: https://learn.microsoft.com/azure/event-grid/event-filtering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from localazure.eventgrid.schemas import Event, Schema

# "Limitations" of the page above.
MAX_ADVANCED_FILTERS = 25
MAX_VALUES = 25


class Operand(Enum):
    """What an operator compares with."""

    NUMBERS = "values: a list of numbers"
    NUMBER = "value: a number"
    RANGES = "values: a list of [low, high]"
    BOOLEAN = "value: true or false"
    STRINGS = "values: a list of strings"
    NOTHING = "no value"


@dataclass(frozen=True)
class Operator:
    """An operator of advanced filters.

    Attributes:
        operand: what it takes.
        test: whether one value of the event meets one operand.
        negated: true where no value may meet any operand, which holds for an absent key, too.
    """

    operand: Operand
    test: Callable[[Any, Any], bool]
    negated: bool = False


def _number(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: (
        isinstance(value, int | float) and not isinstance(value, bool) and test(value, operand)
    )


def _string(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    # Operands were lower-cased when the filter was made: strings compare without regard to case.
    return lambda value, operand: isinstance(value, str) and test(value.lower(), operand)


_within = _number(lambda value, ends: ends[0] <= value <= ends[1])
_equal = _number(lambda value, operand: value == operand)
_same = _string(lambda value, operand: value == operand)
_begins = _string(str.startswith)
_ends = _string(str.endswith)
_contains = _string(lambda value, operand: operand in value)

OPERATORS: Mapping[str, Operator] = {
    "NumberIn": Operator(Operand.NUMBERS, _equal),
    "NumberNotIn": Operator(Operand.NUMBERS, _equal, negated=True),
    "NumberLessThan": Operator(Operand.NUMBER, _number(lambda value, operand: value < operand)),
    "NumberLessThanOrEquals": Operator(
        Operand.NUMBER, _number(lambda value, operand: value <= operand)
    ),
    "NumberGreaterThan": Operator(Operand.NUMBER, _number(lambda value, operand: value > operand)),
    "NumberGreaterThanOrEquals": Operator(
        Operand.NUMBER, _number(lambda value, operand: value >= operand)
    ),
    "NumberInRange": Operator(Operand.RANGES, _within),
    "NumberNotInRange": Operator(Operand.RANGES, _within, negated=True),
    "BoolEquals": Operator(Operand.BOOLEAN, lambda value, operand: value is operand),
    "StringIn": Operator(Operand.STRINGS, _same),
    "StringNotIn": Operator(Operand.STRINGS, _same, negated=True),
    "StringBeginsWith": Operator(Operand.STRINGS, _begins),
    "StringNotBeginsWith": Operator(Operand.STRINGS, _begins, negated=True),
    "StringEndsWith": Operator(Operand.STRINGS, _ends),
    "StringNotEndsWith": Operator(Operand.STRINGS, _ends, negated=True),
    "StringContains": Operator(Operand.STRINGS, _contains),
    "StringNotContains": Operator(Operand.STRINGS, _contains, negated=True),
    "IsNullOrUndefined": Operator(
        Operand.NOTHING, lambda value, _: value is not None, negated=True
    ),
    "IsNotNull": Operator(Operand.NOTHING, lambda value, _: value is not None),
}


@dataclass(frozen=True)
class AdvancedFilter:
    """One condition: the value under `key` meets any of `operands` (none of them, if negated)."""

    operator: Operator
    key: str
    operands: tuple[Any, ...]

    def matches(self, event: Event, *, arrays: bool) -> bool:
        """Whether the event meets the condition; of an array, any element may meet it."""
        value = lookup(event, self.key)
        values = [value]
        if isinstance(value, list) and self.operator.operand is not Operand.NOTHING:
            values = value if arrays else []
        met = any(
            self.operator.test(value, operand) for value in values for operand in self.operands
        )
        return met != self.operator.negated


@dataclass(frozen=True, kw_only=True)
class Filter:
    """All conditions of a subscription; an event must meet every one."""

    event_types: frozenset[str] | None = None
    subject_begins_with: str = ""
    subject_ends_with: str = ""
    case_sensitive: bool = False
    advanced: tuple[AdvancedFilter, ...] = ()
    arrays: bool = False

    def matches(self, event: Event, schema: Schema) -> bool:
        """Whether the subscription wants the event, given in the schema it was published in."""
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
    """The value under a dotted key, None when absent. Case matters only below the first level."""
    first, *rest = key.split(".")
    value: Any = next((v for name, v in event.items() if name.lower() == first.lower()), None)
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    return value
