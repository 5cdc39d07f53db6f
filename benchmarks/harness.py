"""Side by side: contenders measured by turns in one run, and the ratios of their turns.

A machine's speed drifts over a run, and other programs come and go. So contenders take turns,
round by round; a round's ratio compares turns that lie next to each other, and the median of the
ratios is what is quoted.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Sample = Mapping[str, float]
"""Measurements of one turn: metric, with its unit in its name, to value."""


class Skipped(Exception):
    """A benchmark or contender cannot run here; the message says why and what would fix it."""


class ProcessFailed(Exception):
    """A process that is measured did not start, ended, or failed; the message has its output."""


@dataclass(frozen=True)
class Spread:
    """Smallest, middle and largest of some numbers."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(min(values), statistics.median(values), max(values))


@dataclass(frozen=True)
class Line:
    """One contender in one metric.

    Attributes:
        metric: what, and in which unit.
        contender: who.
        values: one for each turn.
        spread: of the values.
        ratio: median over the rounds of the first contender's value ÷ this one's; None for itself
            and where this one measured nothing but zeros.
    """

    metric: str
    contender: str
    values: list[float]
    spread: Spread
    ratio: float | None


@dataclass
class Result:
    """Results of one benchmark.

    Attributes:
        name: of the benchmark.
        lines: its table.
        notes: what the reader has to know besides, such as who was skipped and why.
    """

    name: str
    lines: list[Line] = field(default_factory=list[Line])
    notes: list[str] = field(default_factory=list[str])


class Bench:
    """One run of a benchmark: its size, its progress, its results.

    Args:
        name: of the benchmark.
        is_quick: take few turns, to see that it works.
        say: shows progress.
    """

    def __init__(self, name: str, *, is_quick: bool, say: Callable[[str], None]) -> None:
        self.is_quick = is_quick
        self.say = say
        self.result = Result(name)

    def rounds(self, full: int, quick: int) -> int:
        """How many rounds: the one or the other number."""
        return quick if self.is_quick else full

    def note(self, text: str) -> None:
        """Add a remark to the result."""
        self.say(f"{self.result.name}: {text}")
        self.result.notes.append(text)

    def compare(self, contenders: Mapping[str, Callable[[], Sample]], rounds: int) -> None:
        """Let contenders take turns; the first one is whom the others are compared with.

        A contender whose turn raises `Skipped` takes no further turn and is noted.

        Args:
            contenders: name to what takes one turn.
            rounds: turns of each.
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
    """Lines, metric by metric, of contenders' turns; the first one is the one compared."""
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
            lines.append(Line(metric, contender, values, Spread.of(values), ratio))
    return lines


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of the rounds' ratios; None when there is nothing to divide by."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True) if other]
    return statistics.median(ratios) if ratios else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that so many percent do not exceed (nearest rank).

    Raises:
        ValueError: there are no values, or percent is not in (0, 100].
    """
    if not values or not 0 < percent <= 100:  # noqa: PLR2004 - per cent
        raise ValueError(f"the {percent}th percentile of {len(values)} values is not defined")
    rank = -(-len(values) * percent // 100)  # rounded up
    return sorted(values)[int(rank) - 1]


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Where this runs: cores, load, Python, versions of packages."""
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


def to_document(facts: Mapping[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """All results as one JSON document."""
    return {"machine": dict(facts), "results": [asdict(result) for result in results]}


def to_text(facts: Mapping[str, Any], results: Sequence[Result]) -> str:
    """All results as Markdown, which is what the documentation holds."""
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
    """With three significant digits, and never in scientific notation."""
    if value == 0:
        return "0"
    exponent = int(f"{value:e}".partition("e")[2])
    return f"{value:,.{max(0, 2 - exponent)}f}"


def to_stderr(line: str) -> None:
    """Show progress where it does not mix with the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
