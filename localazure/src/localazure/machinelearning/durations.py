"""ISO 8601 durations, the format of `limits.timeout` and of idle times. Pure."""

from __future__ import annotations

import re

from localazure.machinelearning.errors import invalid

_DURATION = re.compile(
    r"^P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?$"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def parse_seconds(duration: str) -> float:
    """Convert a duration such as `PT1H30M` to seconds; months and years are not allowed.

    Raises:
        ValueError: the text is not a duration, or has months or years.
    """
    match = _DURATION.match(duration)
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v is not None}
    if not parts:
        raise ValueError(f"{duration!r} is not an ISO 8601 duration such as PT2M or P1DT12H")
    return sum(float(value) * _SECONDS[unit] for unit, value in parts.items())


def read_seconds(field: str, duration: str) -> float:
    """Convert a duration in a document to seconds.

    Raises:
        ArmError: 400, the text is not a duration; the message names the field.
    """
    try:
        return parse_seconds(duration)
    except ValueError as error:
        raise invalid(f"{field}: {error}") from error
