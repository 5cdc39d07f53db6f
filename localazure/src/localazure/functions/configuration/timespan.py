"""Durations in .NET's format `[-][d.]hh:mm:ss[.fffffff]`, which host.json uses.

Source: https://learn.microsoft.com/dotnet/standard/base-types/standard-timespan-format-strings
"""

from __future__ import annotations

import re
from datetime import timedelta

_TIMESPAN = re.compile(
    r"(?:(\d{1,8})\.)?([01]?\d|2[0-3]):([0-5]?\d)(?::([0-5]?\d)(?:\.(\d{1,7}))?)?"
)


def parse_timespan(text: str) -> timedelta:
    """Parse a duration of zero or more.

    Raises:
        ValueError: the text is not such a duration.
    """
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration of the form [d.]hh:mm:ss")
    days, hours, minutes, seconds, fraction = match.groups(default="0")
    return timedelta(
        days=int(days),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int(fraction.ljust(7, "0")) // 10,
    )
