"""The picture of a pipeline: what happened to it on one axis of time, as an SVG document. Pure.

Each mark is a link to the page's screen of its thing, and has a sentence. The axis is divided into
cells. Marks of one lane that would overlap in a cell are put together into one mark, which says how
many there are and leads to their list. While the document is too large, the cells are made larger.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, get_args

from handlers.notify.page_links import fragment, rollout_fragment
from handlers.platform.record_store import countdown
from orchestrations.contracts.outcomes import Colour, rule_of_run
from orchestrations.contracts.run_states import RunState, UnfinishedRunState
from orchestrations.errors import shorten
from orchestrations.training.room import clock

Row = Literal["batches", "runs", "versions", "people", "traffic"]
Lane = Literal[
    "trained", "held", "not trained", "won", "lost", "failed", "stopped", "under way", "version",
    "champion", "approved", "rejected", "unanswered", "actions", "live", "rolled back", "other",
]  # fmt: skip
LIMIT_BYTES = 200_000
NOTES_SHOWN = 8
SENTENCE_LIMIT_CHARACTERS = 240
SHARES_SHOWN = 5
# The colours are those of page/style.css; `light-dark` follows the reader's prefers-color-scheme.
STYLE = f"""svg{{color-scheme:light dark;min-width:800px;background:var(--paper);
--paper:light-dark(#fff,#14171c);
--line:light-dark(#d8dee4,#333b45);--ink:light-dark(#1c2330,#e4e8ee);--dim:light-dark(#57606e,#9aa5b4);
--good:light-dark(#176639,#5fd08c);--bad:light-dark(#b3261e,#ff8a80);--warn:light-dark(#8a5300,#f2b84b);
--busy:light-dark(#0959ab,#6cb2ff);--quiet:light-dark(#57606e,#9aa5b4)}}
text{{font:12px system-ui,sans-serif;fill:var(--ink)}}.dim{{font-size:11px;fill:var(--dim)}}
.name{{font-weight:600}}.line{{fill:none;stroke:var(--line)}}.unread{{fill:var(--line);opacity:.5}}
a path,a rect{{fill:currentColor;stroke:currentColor}}a text{{fill:currentColor;font-size:11px}}
a .ring,a .diamond,a .square{{fill:var(--paper);stroke-width:2}}.cross{{stroke-width:2.5}}
a .error{{fill:none;stroke-width:1.5}}.floor{{stroke-dasharray:5 4}}.many rect{{fill-opacity:.15}}
.band rect{{fill-opacity:.25}}a:hover path,a:hover rect{{stroke-width:3}}
{"".join(f".{name}{{color:var(--{name})}}" for name in get_args(Colour))}"""
_SHAPES = {
    "disc": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "ring": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "cross": "M-4-4L4 4M4-4L-4 4",
    "square": "M-4-4h8v8h-8z",
    "bars": "M-5-5h3v10h-3zM2-5h3v10h-3z",
    "diamond": "M0-5.5L5.5 0L0 5.5L-5.5 0z",
    "arrow": "M-4-5.5L6 0L-4 5.5z",
    "up": "M0-6L6 5H-6z",
    "down": "M0 6L6-5H-6z",
    "star": "M0-9L2.6-3.2L9-2.6L4.2 1.6L5.6 8L0 4.6L-5.6 8L-4.2 1.6L-9-2.6L-2.6-3.2z",
}
WIDTH, LEFT, PLOT = 1254.0, 132.0, 1080.0
_CELLS = (36.0, 72.0, 144.0, 270.0, 540.0, 1080.0)
"""Widths, each a part of the plot's; the first is a day of thirty."""
_LANE, _CHART, _BAND, _MARK = 22.0, 90.0, 44.0, 6.0
_TICKS = tuple(timedelta(hours=it) for it in (1, 3, 6, 12, 24, 48, 96, 168, 336, 720, 2_160))
_TICKS_AT_MOST = 15
# What XML does not allow, and what is obeyed instead of shown: see page/texts.js.
_OBEYED = re.compile(
    "[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    "|[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def link(screen: str, name: str = "", query: Mapping[str, str] | None = None) -> str:
    """The address of a screen of the page."""
    return f"/api/ui{fragment(screen, name, query)}"


def rollout_link(rollout: str) -> str:
    """The address of the screen of one rollout."""
    return f"/api/ui{rollout_fragment(rollout)}"


def actions_until(moment: datetime) -> str:
    """The screen of people's actions, from a moment backwards."""
    return link("history", query={"after": f"{countdown(moment)}_{'0' * 16}"})


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something that happened."""

    lane: Lane
    at: datetime
    sentence: str
    link: str
    name: str = ""
    """Of a version; shown where there is room."""
    value: float = 0.0
    """Of a version: the gate's metric."""
    reach: float = 0.0
    """How far the 95 % confidence interval of its lead over the champion reaches; 0: unknown."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A rollout has set the endpoint's traffic."""

    at: datetime
    shares: Mapping[str, int]
    """Deployment → percent."""
    rollout: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a picture shows."""

    pipeline: str
    metric: str
    floor: float
    since: datetime
    until: datetime
    marks: Sequence[Mark] = ()
    changes: Sequence[Change] = ()
    read_from: Mapping[Row, datetime] = field(default_factory=dict[Row, datetime])
    """The time before which a row's things are not read, if there are any."""
    notes: Sequence[str] = ()
    """Sentences below the picture."""


@dataclass(frozen=True)
class _Look:
    row: Row
    shape: str
    colour: Colour
    many: str
    """What several of them are, after their number."""


_LOOKS: Mapping[Lane, _Look] = {
    "trained": _Look("batches", "disc", "busy", "batches were trained on"),
    "held": _Look("batches", "bars", "warn", "batches were held"),
    "not trained": _Look("batches", "diamond", "quiet", "batches were not trained on"),
    "won": _Look("runs", "disc", "good", "runs won"),
    "lost": _Look("runs", "ring", "quiet", "runs lost to the gate"),
    "failed": _Look("runs", "cross", "bad", "runs failed"),
    "stopped": _Look("runs", "square", "warn", "runs were cancelled or not needed"),
    "under way": _Look("runs", "arrow", "busy", "runs are under way"),
    "version": _Look("versions", "disc", "quiet", "versions were registered"),
    "champion": _Look("versions", "star", "good", "versions are in service"),
    "approved": _Look("people", "disc", "good", "questions were approved"),
    "rejected": _Look("people", "cross", "bad", "questions were rejected"),
    "unanswered": _Look("people", "diamond", "warn", "questions have no answer"),
    "actions": _Look("people", "square", "busy", "actions of people"),
    "live": _Look("traffic", "up", "good", "rollouts went live"),
    "rolled back": _Look("traffic", "down", "bad", "rollouts were rolled back or failed"),
    "other": _Look("traffic", "ring", "quiet", "rollouts are under way or superseded"),
}


def lane_of_run(state: RunState) -> Lane:
    """The lane of a run in a state."""
    if state in get_args(UnfinishedRunState):
        return "under way"
    ends: Mapping[RunState, Lane] = {"succeeded": "won", "not_promoted": "lost"}
    return ends.get(state, "failed" if rule_of_run(state).is_failure else "stopped")


def draw(facts: Facts) -> str:
    """The picture; its size in UTF-8 is at most `LIMIT_BYTES`."""
    text = ""
    for cell in _CELLS:
        text = _Drawing(facts, cell).text()
        if len(text.encode()) <= LIMIT_BYTES:
            break
    return text


class _Drawing:
    """The picture with cells of one width; the next row begins at `self._y`."""

    def __init__(self, facts: Facts, cell: float) -> None:
        self._facts, self._cell, self._y = facts, cell, 48.0
        self._span = max(facts.until - facts.since, timedelta(seconds=1))
        self._root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "group"})
        self._lanes: dict[Lane, list[Mark]] = defaultdict(list)
        for mark in sorted(facts.marks, key=lambda it: it.at):
            if facts.since <= mark.at <= facts.until:
                self._lanes[mark.lane].append(mark)

    def text(self) -> str:
        """The document."""
        facts = self._facts
        said = f"{facts.pipeline} from {clock(facts.since)} to {clock(facts.until)}"
        _add(self._root, "title", said)
        _add(self._root, "style").text = STYLE
        grid = _add(self._root, "g")  # below the marks
        _add(self._root, "text", said, kind="name", x=8, y=18)
        for row in get_args(Row):
            self._row(row)
        self._axis(grid)
        for note in facts.notes[:NOTES_SHOWN]:
            _add(self._root, "text", note, kind="dim", x=8, y=self._y + 12)
            self._y += 16
        self._root.set("viewBox", f"0 0 {_n(WIDTH)} {_n(self._y + 8)}")
        return ET.tostring(self._root, encoding="unicode")

    def _axis(self, grid: ET.Element) -> None:
        """Dates above the rows, and a line below each through all of them."""
        step = next((it for it in _TICKS if self._span / it <= _TICKS_AT_MOST), _TICKS[-1])
        step *= max(1, math.ceil(self._span / step / _TICKS_AT_MOST))
        days, seconds = step / timedelta(days=1), step.total_seconds()
        form = "%m-%d %H:%M" if days < 1 else "%m-%d" if days < _TICKS_AT_MOST else "%Y-%m-%d"
        begin, end = (it.timestamp() / seconds for it in (self._facts.since, self._facts.until))
        for number in range(math.ceil(begin), math.floor(end) + 1):
            moment = datetime.fromtimestamp(number * seconds, UTC)
            x = self._x(moment)
            _add(grid, "path", kind="line", d=f"M{_n(x)} 43V{_n(self._y)}")
            _add(grid, "text", f"{moment:{form}}", kind="dim", x=x, y=38, text_anchor="middle")

    def _row(self, row: Row) -> None:
        top, drawn = self._y, self._lanes
        lanes: list[Lane] = [it for it, look in _LOOKS.items() if look.row == row and it in drawn]
        _add(self._root, "path", kind="line", d=f"M0 {_n(top)}H{_n(WIDTH)}")
        _add(self._root, "text", row, kind="name", x=8, y=top + 17)
        unread = _add(self._root, "rect", kind="unread", x=LEFT, y=top)
        self._y += 2
        if row == "versions" and lanes:
            self._chart(lanes)
        elif row == "traffic" and self._facts.changes:
            self._bands()
        for lane in lanes if row != "versions" else ():
            y = self._y + _LANE / 2
            _add(self._root, "text", lane, kind="dim", x=LEFT - 8, y=y + 4, text_anchor="end")
            self._draw(lane, lambda _, y=y: y)
            self._y += _LANE
        if self._y == top + 2:
            _add(self._root, "text", "none", kind="dim", x=LEFT + _MARK, y=top + 17)
            self._y += _LANE
        width = self._x(self._facts.read_from.get(row, self._facts.since)) - LEFT
        unread.set("width", _n(min(max(width, 0), PLOT)))
        unread.set("height", _n(self._y - top))
        self._y += 8

    def _draw(self, lane: Lane, y_of: Callable[[float], float]) -> None:
        """The marks of a lane, each at the height of its value."""
        look, cells = _LOOKS[lane], defaultdict[int, list[Mark]](list)
        last = round(PLOT / self._cell) - 1
        for mark in self._lanes[lane]:
            cells[min(int((self._x(mark.at) - LEFT) / self._cell), last)].append(mark)
        for number, marks in cells.items():
            begin = LEFT + number * self._cell
            end = begin + self._cell - _MARK
            places = [min(max(self._x(it.at), begin + _MARK), end) for it in marks]
            if any(b - a < self._cell / 3 for a, b in pairwise(places)):
                self._many(lane, marks, begin, [y_of(it.value) for it in marks])
                continue
            for mark, x in zip(marks, places, strict=True):
                shown = self._link(mark.link, f"{clock(mark.at)}: {mark.sentence}", look.colour)
                high, low = y_of(mark.value + mark.reach), y_of(mark.value - mark.reach)
                if mark.reach:
                    bar = f"M{_n(x - 3)} {_n(high)}h6m-3 0V{_n(low)}m-3 0h6"
                    _add(shown, "path", kind="error", d=bar)
                place = f"translate({_n(x)} {_n(y_of(mark.value))})"
                _add(shown, "path", kind=look.shape, d=_SHAPES[look.shape], transform=place)
                if mark.name and len(marks) == 1:
                    _add(shown, "text", mark.name, x=x, y=high - 10, text_anchor="middle")

    def _many(self, lane: Lane, marks: Sequence[Mark], x: float, heights: Sequence[float]) -> None:
        look, facts = _LOOKS[lane], self._facts
        first, last = marks[0].at, marks[-1].at
        states = [each for each in get_args(RunState) if lane_of_run(each) == lane]
        # The run of a batch begins soon after the batch is frozen.
        until = last if look.row == "runs" else last + timedelta(minutes=5)
        query = {"pipeline": facts.pipeline, "from": first.isoformat(), "to": until.isoformat()}
        screen, name = ("pipelines", facts.pipeline) if lane == "held" else ("runs", "")
        targets: Mapping[Row, str] = {
            "batches": link(screen, name, {} if name else query),
            "runs": link("runs", query=query | {"state": ",".join(states)}),
            "versions": link("models", facts.pipeline),
            "people": actions_until(last),
            "traffic": link("models", query={"after": f"{countdown(last)}_rollout-0"}),
        }
        said = f"{len(marks):,} {look.many}, from {clock(first)} to {clock(last)}"
        shown = self._link(targets[look.row], said, f"many {look.colour}")
        top, bottom, width = min(heights) - 7.5, max(heights) + 7.5, self._cell - 4
        _add(shown, "rect", x=x + 2, y=top, width=width, height=bottom - top, rx=7)
        champions = (self._x(it.at) for it in self._lanes.get("champion", ()))
        is_behind = look.row == "versions" and any(x <= it < x + self._cell for it in champions)
        y = bottom + 11 if is_behind else (top + bottom) / 2 + 4
        _add(shown, "text", f"{len(marks):,}", x=x + self._cell / 2, y=y, text_anchor="middle")

    def _chart(self, lanes: Sequence[Lane]) -> None:
        """The gate's metric of each version, with its uncertainty; the floor; the champion."""
        facts, top = self._facts, self._y + 20
        marks = [it for lane in lanes for it in self._lanes[lane]]
        ends = [facts.floor, *(it.value + sign * it.reach for it in marks for sign in (-1, 1))]
        low, high = min(ends), max(ends)

        def y_of(value: float) -> float:
            return top + _CHART * (high - value) / ((high - low) or 1.0)

        _add(self._root, "text", shorten(facts.metric, 16), kind="dim", x=8, y=top + 14)
        for value in {low, high}:
            x, y = LEFT - 8, y_of(value) + 4
            _add(self._root, "text", f"{value:.4g}", kind="dim", x=x, y=y, text_anchor="end")
        shown = self._link(link("models", facts.pipeline), f"the floor is {facts.floor:g}", "bad")
        _add(shown, "path", kind="floor", d=f"M{_n(LEFT)} {_n(y_of(facts.floor))}h{_n(PLOT)}")
        for lane in lanes:
            self._draw(lane, y_of)
        self._y += _CHART + 30

    def _bands(self) -> None:
        """The shares of the endpoint's traffic as bands; of changes close together, the last."""
        facts, bottom = self._facts, self._y + 4 + _BAND
        kept: dict[int, tuple[float, Change]] = {}
        for change in sorted(facts.changes, key=lambda it: it.at):
            if change.at <= facts.until:
                x = max(self._x(change.at), LEFT)
                kept[int((x - LEFT) * 3 / self._cell)] = x, change
        order = list(dict.fromkeys(name for _, it in kept.values() for name in sorted(it.shares)))
        ends = (LEFT + PLOT, Change(at=facts.until, shares={}, rollout=""))
        for (x, change), (end, following) in pairwise([*kept.values(), ends]):
            y, width = bottom, end - x
            largest = sorted(change.shares, key=lambda it: -change.shares[it])[:SHARES_SHOWN]
            for name in sorted(largest, key=order.index):
                height = _BAND * min(max(change.shares[name], 0), 100) / 100
                y -= height
                times = f"from {clock(change.at)} to {clock(following.at)}"
                said = f"{name} has {change.shares[name]} % of the traffic, {times}"
                colour = ("busy", "good", "quiet")[order.index(name) % 3]
                shown = self._link(rollout_link(change.rollout), said, f"band {colour}")
                _add(shown, "rect", x=x, y=y, width=width, height=height)
                if width > 8 * len(name) and height > _BAND / 3:
                    _add(shown, "text", name, x=x + 6, y=y + height / 2 + 4)
        self._y += _BAND + 8

    def _x(self, moment: datetime) -> float:
        return LEFT + PLOT * ((moment - self._facts.since) / self._span)

    def _link(self, target: str, sentence: str, kind: str) -> ET.Element:
        shown = _add(self._root, "a", href=target, kind=kind)
        _add(shown, "title", sentence)
        return shown


def _add(
    parent: ET.Element, name: str, text: str = "", *, kind: str = "", **attributes: str | float
) -> ET.Element:
    """Add an element; the text is cut, and has no character that is obeyed instead of shown."""
    element = ET.SubElement(parent, name, {"class": kind} if kind else {})
    for key, value in attributes.items():
        element.set(key.replace("_", "-"), value if isinstance(value, str) else _n(value))
    shown = shorten(text, SENTENCE_LIMIT_CHARACTERS)
    element.text = _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", shown) or None
    return element


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
