"""The `filter` of an event subscription, as ARM and `event-grid.json` write it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StringConstraints, model_validator

from localazure.configuration_file import ConfigurationModel, error_at
from localazure.eventgrid.filters import (
    MAX_ADVANCED_FILTERS,
    MAX_VALUES,
    OPERATORS,
    AdvancedFilter,
    Filter,
)

_Text = Annotated[str, StringConstraints(min_length=1)]
_Number = Annotated[float, Field(strict=True)]


class _Condition(ConfigurationModel):
    key: _Text


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
    values: tuple[_Text, ...]


class _PresenceCondition(_Condition):
    operator_type: Literal["IsNullOrUndefined", "IsNotNull"]


_ConditionModel = (
    _NumberCondition
    | _NumbersCondition
    | _RangesCondition
    | _BoolCondition
    | _StringsCondition
    | _PresenceCondition
)


def _operands(condition: _ConditionModel) -> tuple[Any, ...]:
    match condition:
        case _StringsCondition(values=values):
            return tuple(value.lower() for value in values)
        case _NumbersCondition(values=values) | _RangesCondition(values=values):
            return values
        case _NumberCondition(value=value) | _BoolCondition(value=value):
            return (value,)
        case _PresenceCondition():
            return (None,)


class FilterConfiguration(ConfigurationModel):
    """The `filter` of an event subscription."""

    included_event_types: tuple[_Text, ...] | None = None
    subject_begins_with: str = ""
    subject_ends_with: str = ""
    is_subject_case_sensitive: StrictBool = False
    enable_advanced_filtering_on_arrays: StrictBool = False
    advanced_filters: tuple[
        Annotated[_ConditionModel, Field(discriminator="operator_type")], ...
    ] = ()

    @model_validator(mode="after")
    def _within_limits(self) -> FilterConfiguration:
        filters = self.advanced_filters
        values = sum(len(_operands(item)) for item in filters)
        if len(filters) > MAX_ADVANCED_FILTERS or values > MAX_VALUES:
            raise error_at(
                ("advancedFilters",),
                f"must be at most {MAX_ADVANCED_FILTERS} filters with {MAX_VALUES} values in all",
            )
        return self

    def filter(self) -> Filter:
        """The filter at work."""
        types = self.included_event_types
        return Filter(
            event_types=None if types is None else frozenset(name.lower() for name in types),
            subject_begins_with=self.subject_begins_with,
            subject_ends_with=self.subject_ends_with,
            case_sensitive=self.is_subject_case_sensitive,
            advanced=tuple(
                AdvancedFilter(OPERATORS[item.operator_type], item.key, _operands(item))
                for item in self.advanced_filters
            ),
            arrays=self.enable_advanced_filtering_on_arrays,
        )
