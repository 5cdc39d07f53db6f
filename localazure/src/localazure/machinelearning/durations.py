"""ISO 8601 durations, as `limits.timeout` and idle times are given. Pure."""

from __future__ import annotations

import re

from localazure.machinelearning.errors import invalid

_DURATION = re.compile(
    r"^P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?$"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def parse_seconds(duration: str) -> float:
    """Seconds of a duration such as `PT1H30M`; months and years have none.

    Raises:
        ValueError: the text is not such a duration.
    """
    match = _DURATION.match(duration)
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v is not None}
    if not parts:
        raise ValueError(f"{duration!r} is not an ISO 8601 duration such as PT2M or P1DT12H")
    return sum(float(value) * _SECONDS[unit] for unit, value in parts.items())


def read_seconds(field: str, duration: str) -> float:
    """Seconds of a duration in a document.

    Raises:
        ArmError: 400, the text is not a duration; names the field.
    """
    try:
        return parse_seconds(duration)
    except ValueError as error:
        raise invalid(f"{field}: {error}") from error
