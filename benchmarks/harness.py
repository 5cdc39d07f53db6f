"""The harness: contenders take turns in one run; results have the ratios of their turns.

A machine's speed drifts over a run, and other programs come and go. So contenders take turns,
round by round. A round's ratio compares adjacent turns; the result is the median of the ratios.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Sample = Mapping[str, float]
"""Measurements of one turn: the metric, whose name has its unit, to its value."""


class Skipped(Exception):
    """A benchmark or contender cannot run here; the message says why and how to fix it."""


class ProcessFailed(Exception):
    """A measured process did not start, ended, or failed; the message has its output."""


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of some numbers."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of one or more values."""
        return cls(min(values), statistics.median(values), max(values))


@dataclass(frozen=True)
class Line:
    """One contender in one metric.

    Attributes:
        metric: the metric's name, with its unit.
        contender: the contender's name.
        spread: the spread of the values.
        ratio: median over the rounds of the first contender's value ÷ this one's; None for the
            first contender, and if all values are zero.
    """

    metric: str
    contender: str
    spread: Spread
    ratio: float | None


@dataclass
class Result:
    """Results of one benchmark.

    Attributes:
        name: the benchmark's name.
        lines: the lines of its table.
        notes: further information, such as skipped contenders and the reasons.
    """

    name: str
    lines: list[Line] = field(default_factory=list[Line])
    notes: list[str] = field(default_factory=list[str])


class Bench:
    """One run of a benchmark: its size, its progress, its results.

    Args:
        name: the benchmark's name.
        is_quick: whether to take few turns, only to check that the benchmark works.
        say: is called with lines of progress.
    """

    def __init__(self, name: str, *, is_quick: bool, say: Callable[[str], None]) -> None:
        self.is_quick = is_quick
        self.say = say
        self.result = Result(name)

    def rounds(self, full: int, quick: int) -> int:
        """Return the number of rounds: `full`, or `quick` in a quick run."""
        return quick if self.is_quick else full

    def note(self, text: str) -> None:
        """Add a remark to the result."""
        self.say(f"{self.result.name}: {text}")
        self.result.notes.append(text)

    def compare(self, contenders: Mapping[str, Callable[[], Sample]], rounds: int) -> None:
        """Run the contenders in turns, and compare the first with the others.

        A contender whose turn raises `Skipped` is noted and takes no further turns.

        Args:
            contenders: name to a function that takes one turn.
            rounds: the number of turns of each.
        """
        samples: dict[str, list[Sample]] = {name: [] for name in contenders}
        for number in range(1, rounds + 1):
            for name in list(samples):
                self.say(f"{self.result.name}: round {number} of {rounds}, {name}")
                try:
                    samples[name].append(contenders[name]())
                except Skipped as reason:
                    self.note(f"{name} skipped: {reason}")
                    del samples[name]
        self.result.lines += table(samples)


def table(samples: Mapping[str, Sequence[Sample]]) -> list[Line]:
    """Return the table's lines by metric. The first contender is compared with the others."""
    lines: list[Line] = []
    metrics = dict.fromkeys(metric for turns in samples.values() for metric in turns[0])
    for metric in metrics:
        first: list[float] | None = None
        for contender, turns in samples.items():
            if metric not in turns[0]:
                continue
            values = [turn[metric] for turn in turns]
            ratio = None if first is None else median_ratio(first, values)
            first = first or values
            lines.append(Line(metric, contender, Spread.of(values), ratio))
    return lines


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return the median of the rounds' ratios; None if all of `theirs` are zero."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True) if other]
    return statistics.median(ratios) if ratios else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile of values, by the nearest-rank method.

    Raises:
        ValueError: there are no values, or percent is not in (0, 100].
    """
    if not values or not 0 < percent <= 100:  # noqa: PLR2004 - per cent
        raise ValueError(f"the {percent}th percentile of {len(values)} values is not defined")
    rank = -(-len(values) * percent // 100)  # rounded up
    return sorted(values)[int(rank) - 1]


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Describe the machine: cores, load, Python, versions of packages."""
    versions: dict[str, str] = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_average_1_min": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "packages": versions,
    }


def to_text(facts: Mapping[str, Any], results: Sequence[Result]) -> str:
    """Return all results as Markdown, for docs/benchmarks.md."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    where = (
        f"{facts['cores']} cores, {facts['system']} {facts['architecture']}, "
        f"load {facts['load_average_1_min']} at the start, Python {facts['python']}; {packages}"
    )
    blocks = [where]
    for result in results:
        block = [f"### {result.name}", ""]
        if result.lines:
            block += ["| | | min | median | max | first ÷ this |", "|---|---|---|---|---|---|"]
            block += [_row(line) for line in result.lines]
            block.append("")
        block += [f"- {note}" for note in result.notes]
        blocks.append("\n".join(block).rstrip())
    return "\n\n".join(blocks)


def _row(line: Line) -> str:
    spread = line.spread
    cells = [number(value) for value in (spread.minimum, spread.median, spread.maximum)]
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    return f"| {line.metric} | {line.contender} | {' | '.join(cells)} | {ratio} |"


def number(value: float) -> str:
    """Format with three significant digits, never in scientific notation."""
    if value == 0:
        return "0"
    exponent = int(f"{value:e}".partition("e")[2])
    return f"{value:,.{max(0, 2 - exponent)}f}"


def to_stderr(line: str) -> None:
    """Write progress to stderr, separate from the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
