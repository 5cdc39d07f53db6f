"""Partitions of a landing zone, such as `date=2026-11-22/`: parsing and selection.

A pattern describes the first folders below a pipeline's prefix: `date=%Y-%m-%d`, or one folder per
level, `year=%Y/month=%m/day=%d`. Its directives are the `strptime` directives in `DIGITS`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# Coarse to fine. The width is fixed, because strptime reads the folders `1` and `01` as one month.
DIGITS = {"%Y": 4, "%m": 2, "%d": 2, "%H": 2}
_DIRECTIVE = re.compile(r"%.?")
_FORMATS = {1: "%Y", 2: "%Y-%m", 3: "%Y-%m-%d", 4: "%Y-%m-%dT%H"}


@dataclass(frozen=True, order=True)
class Partition:
    """One folder of a zone. Partitions are ordered by the time in their names."""

    begins_at: datetime
    key: str
    """Its time as text, `2026-11-22`: unique in the zone, and valid in an instance id."""
    prefix: str
    """The path below the pipeline's prefix, with the last slash: `date=2026-11-22/`."""


class PartitionPattern:
    """A parsed `source.partitions`."""

    def __init__(self, text: str) -> None:
        """Parse a pattern.

        Args:
            text: the pattern in the pipeline file.

        Raises:
            ValueError: it is not a path of folders, or its directives do not name a span of time.
        """
        directives = _DIRECTIVE.findall(text)
        wanted = list(DIGITS)[: len(directives)]
        if not directives or sorted(directives) != sorted(wanted):
            raise ValueError(
                f"{text!r} needs %Y, and then %m, %d and %H as far as the folders' names go, each "
                f"once; it has {', '.join(directives) or 'none'}"
            )
        if text.startswith("/") or "//" in text or re.search(r"%[YmdH]%", text):
            raise ValueError(f"{text!r} is not a path of folders with separators between numbers")
        self._text = text.rstrip("/") + "/"
        self._format = _FORMATS[len(directives)]
        self._directives = wanted
        self._expression = re.compile(
            "".join(
                f"(?P<{part[1]}>[0-9]{{{DIGITS[part]}}})" if part in DIGITS else re.escape(part)
                for part in re.split(r"(%[YmdH])", self._text)
            )
        )

    @property
    def levels(self) -> int:
        """The number of folder levels of a partition."""
        return self._text.count("/")

    def partition_of(self, path: str) -> Partition | None:
        """The partition that holds `path` (relative to the pipeline's prefix); None if outside."""
        match = self._expression.match(path)
        if match is None:
            return None
        key = self._format
        for directive in self._directives:
            key = key.replace(directive, match[directive[1]])
        try:
            begins_at = datetime.strptime(key, self._format).replace(tzinfo=UTC)
        except ValueError:  # such as the 31st of February
            return None
        return Partition(begins_at, key, match[0])

    def partition(self, key: str) -> Partition:
        """The partition with this key.

        Raises:
            ValueError: the key does not match the pattern.
        """
        begins_at = datetime.strptime(key, self._format).replace(tzinfo=UTC)
        prefix = self._text
        # Not strftime, which omits the leading zero of the year 0999.
        for directive, digits in zip(self._directives, re.split("[-T]", key), strict=True):
            prefix = prefix.replace(directive, digits)
        return Partition(begins_at, key, prefix)


def select(
    partitions: Iterable[Partition],
    *,
    own: Partition | None,
    now: datetime,
    newest: int | None = None,
    last_days: int | None = None,
) -> Sequence[Partition]:
    """The partitions that a batch's dataset is made of, oldest first.

    Args:
        partitions: all partitions of the zone.
        own: the batch's partition, if each partition is a batch. Later partitions are left out, and
            `last_days` counts back from it.
        now: `last_days` counts back from this time if the batch is the whole zone; UTC.
        newest: take this many partitions, the newest ones.
        last_days: take the partitions of this many days; the last is the day of `own`, or today.

    Without `newest` and `last_days`, the result is `own`, or all partitions.
    """
    selected = sorted({each for each in partitions if own is None or each <= own})
    if newest is not None:
        return selected[-newest:]
    if last_days is not None:
        last = now if own is None else own.begins_at
        first_day = last.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
            days=last_days - 1
        )
        return [each for each in selected if each.begins_at >= first_day]
    return selected if own is None else [each for each in selected if each == own]
