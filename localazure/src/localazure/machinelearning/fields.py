"""Fields of clients' documents: whole numbers, and durations in ISO 8601. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from localazure.machinelearning.errors import invalid

_DURATION = re.compile(
    r"^P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?$"
)
_LARGEST = 2**31 - 1  # the REST API's numbers are int32
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def read_count(
    document: Mapping[str, Any], key: str, *, path: str = "", least: int = 1, most: int = _LARGEST
) -> int | None:
    """A whole number in a document, whose own path is `path`; None if the field is not set.

    Raises:
        ArmError: 400, the value is something else, or out of range; the message names the field.
    """
    value: Any = document.get(key)
    if value is not None and (not isinstance(value, int) or not least <= value <= most):
        raise invalid(f"{path}{key} is {value!r}; it must be a whole number from {least} to {most}")
    return value


def read_seconds(field: str, duration: str) -> float:
    """Convert a duration in a document, such as `PT1H30M`, to seconds.

    Raises:
        ArmError: 400, the text is no duration, or has months or years; the message names the field.
    """
    match = _DURATION.match(duration)
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v is not None}
    if not parts:
        raise invalid(f"{field}: {duration!r} is not an ISO 8601 duration such as PT2M or P1DT12H")
    return sum(float(value) * _SECONDS[unit] for unit, value in parts.items())
