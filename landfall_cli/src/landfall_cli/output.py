"""Output of the command line: JSON documents, or tables for people.

Texts come from training programs, people and services. A terminal would obey their control
characters, and mirror what follows bidirectional ones: `visible` escapes both. Every line is
printed by `Output.line` or `complain`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

COLOURS = {
    **dict.fromkeys(("succeeded", "reproduced", "live", "finished"), "green"),
    **dict.fromkeys(("failed", "rejected", "needs-a-human", "rolled_back", "broken"), "red"),
    **dict.fromkeys(("quarantined", "missing", "landing-failed", "landing-overdue"), "red"),
    **dict.fromkeys(("manifest-invalid", "pipeline-not-deployed"), "red"),
    **dict.fromkeys(("retrying", "cancelled", "paused", "held", "pending", "ending"), "yellow"),
    **dict.fromkeys(("batch-held", "not_reproduced"), "yellow"),
    **dict.fromkeys(("registering", "provisioning", "waiting_for_nodes", "submitting"), "blue"),
    **dict.fromkeys(("queued", "running", "judging", "publishing"), "blue"),
    **dict.fromkeys(("training", "settling", "closing"), "blue"),
    **dict.fromkeys(("deploying", "testing", "baking", "rolling_back"), "blue"),
}
GAP = "  "
TEXT_COLUMN_MINIMUM = 40
"""If the last column of a table would be narrower than this, it is printed below its row."""
# C0 and C1 controls without tab and line feed, surrogates, separators of lines and paragraphs;
# marks, embeddings, overrides and isolates of the bidirectional algorithm.
# https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Output:
    """Prints the API's documents, as JSON or for people."""

    def __init__(self, console: Console, *, as_json: bool, now: Callable[[], datetime]) -> None:
        self.console = console
        self.as_json = as_json
        self.now = now

    def show(self, document: Any, people: Callable[[Any], None]) -> None:
        """Print the API's document as JSON with `--json`, otherwise by `people`."""
        if self.as_json:
            text = json.dumps(document, indent=2).replace("\x7f", r"\u007f")
            self.line(JSONHighlighter()(Text(text)))
        else:
            people(document)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
        """Print a table without borders; its last column has the long text.

        The other columns are not wrapped, so that an id can be copied. On a terminal, the last
        column is wrapped, or printed below its row if the space is narrow. Elsewhere each row is
        one line, for `grep` and `awk`.
        """
        self._rows([[Text(name, style="dim") for name in columns], *rows])

    def _rows(self, rows: Sequence[Sequence[str | Text]]) -> None:
        cells = [[_one_line(cell) for cell in row] for row in rows]
        widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
        indent = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        room = self.console.width - indent
        is_wrapped = self.console.is_terminal and widths[-1] > room
        is_below = is_wrapped and room < TEXT_COLUMN_MINIMUM
        if is_below:
            indent, room = len(GAP) * 2, self.console.width - len(GAP) * 2
        for *fixed, last in cells:
            line = Text()
            for cell, width in zip(fixed, widths, strict=False):
                line.append_text(cell).append(" " * (width - cell.cell_len) + GAP)
            lines = [last] if not is_wrapped else list(last.wrap(self.console, max(room, 1)))
            for each in lines:
                each.rstrip()
            if not is_below and lines:
                line.append_text(lines.pop(0))
            line.rstrip()
            for each in (line, *(Text(" " * indent).append_text(more) for more in lines if more)):
                self.line(each)

    def line(self, text: str | Text) -> None:
        """Print one line."""
        if isinstance(text, str):
            shown = Text(visible(text))
        else:
            parts = text.render(self.console)
            shown = Text.assemble(*((visible(part.text), part.style or "") for part in parts))
        self.console.print(shown, soft_wrap=True, highlight=False)

    def note(self, text: str | Text) -> None:
        """Print one line about what goes on; nothing with `--json`."""
        if not self.as_json:
            self.line(text)

    def further(self, url: str | None) -> None:
        """Print the option for the next page, if there is one; `url` is `next` of a list."""
        if url:
            (after,) = parse_qs(urlsplit(url).query)["after"]
            self.line(f"There are more: add --after {after}")

    def facts(self, facts: Mapping[str, str | Text | None]) -> None:
        """Print names and values; values that are None are skipped."""
        shown = [
            (Text(name, style="dim"), value) for name, value in facts.items() if value is not None
        ]
        if shown:
            self._rows(shown)

    def ago(self, iso: str | None) -> str:
        """A relative time: `3 min 20 s ago`, `in 2 h 5 min`; `-` for None."""
        return "-" if iso is None else relative(datetime.fromisoformat(iso), self.now())

    def sentence(self, text: str) -> str:
        """A sentence of the API with a relative time after each exact time."""

        def add(match: re.Match[str]) -> str:
            moment = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            return f"{match[0]} ({relative(moment, self.now())})"

        return re.sub(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", add, text)


def exact(iso: str) -> str:
    """A time in the format of the API's sentences: `2026-11-22 10:04:15 UTC`."""
    return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def visible(text: str) -> str:
    r"""The text with an escape such as `\x1b` for each character that a terminal would obey."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def complain(text: str) -> None:
    """Print to stderr."""
    console = Console(stderr=True)
    console.print(Text(visible(text), style="red"), highlight=False, soft_wrap=True)


def _one_line(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(visible(" ".join(cell.split())))


def relative(moment: datetime, now: datetime) -> str:
    """A time relative to `now`."""
    return f"in {duration(moment - now)}" if moment > now else f"{duration(now - moment)} ago"


def duration(span: timedelta) -> str:
    """A duration in its two largest units, in the API's format."""
    seconds = round(span.total_seconds())
    counts: list[tuple[int, str]] = []
    for name, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or counts:
            counts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in counts[:2] if count) or "0 s"


def cost(run: Mapping[str, Any]) -> str | None:
    """The cost of a run's job, with its factors; None if the API gives no cost."""
    spent = run.get("cost")
    if spent is None:
        return None
    hours = spent["node_seconds"] / 3600
    queue = f", queue {spent['queue']}" if spent["queue"] else ""
    return (
        f"{spent['amount']:,.2f} {spent['currency']}: {hours:,.2f} node-hours of {spent['flavor']} "
        f"({spent['nodes']} nodes) at {spent['price_per_node_hour']:,.2f}{queue}"
    )


def assignments(values: Mapping[str, Any]) -> str | None:
    """The parameters of a run or model, in one line; None if there are none."""
    return ", ".join(f"{name}={value}" for name, value in values.items()) or None


def costs(of: Sequence[Mapping[str, Any]], currency: str | None) -> str | None:
    """The costs of each month, in one line; None if there are none."""
    shown = [
        f"{it['month']}: {it['amount']:,.2f} {currency} in queue {it['queue']} "
        f"(runs: {it['runs']}, node-hours: {it['node_hours']:,.2f})"
        for it in of
    ]
    return "; ".join(shown) or None


def state(name: str) -> Text:
    """A state in its color."""
    return Text(name, style=COLOURS.get(name, ""))


def result(run: Mapping[str, Any]) -> str:
    """The outcome of a run, on one line."""
    if run["error"]:
        kind = run["error"]["type"]  # the message may begin with it, if it is Azure ML's error code
        return f"{kind}: {run['error']['message'].removeprefix(f'{kind}: ')}"
    promoted = run["state"] == "succeeded"
    if run["reason"] and not promoted:
        return str(run["reason"])
    metrics = ", ".join(f"{name} {value:.5g}" for name, value in (run["metrics"] or {}).items())
    if run["model"]:
        why = f": {run['reason']}" if run["reason"] else ""
        return f"model {run['model']['name']}:{run['model']['version']} ({metrics}){why}"
    return metrics
