"""Output of the command line: documents as they are, or tables for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "rejected": "red",
    "needs-a-human": "red",
    "retrying": "yellow",
    "cancelled": "yellow",
    "paused": "yellow",
    "running": "blue",
    "queued": "blue",
    "waiting_for_nodes": "blue",
    "training": "blue",
    "settling": "blue",
}
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Output:
    """Where answers are printed, and in which form."""

    def __init__(self, console: Console, *, as_json: bool, now: Callable[[], datetime]) -> None:
        self.console = console
        self.as_json = as_json
        self.now = now

    def show(self, document: Any, people: Callable[[Any], None]) -> None:
        """The API's document with `--json`; otherwise what `people` prints of it."""
        if self.as_json:
            self.console.print_json(json.dumps(document))
        else:
            people(document)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
        """A table without lines, for eyes and for `awk`."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def line(self, text: str | Text) -> None:
        """One line."""
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def further(self, url: str | None) -> None:
        """How to ask for the page that follows, if there is one: `next` of a list."""
        if url:
            self.line(f"more: --after {url.partition('after=')[2]}")

    def facts(self, facts: Mapping[str, str | Text | None]) -> None:
        """Names and values, but for those that are None."""
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, value in facts.items():
            if value is not None:
                table.add_row(Text(name, style="dim"), value)
        self.console.print(table)

    def ago(self, iso: str | None) -> str:
        """How far away a moment is: `3 min 20 s ago`, `in 2 h 5 min`."""
        return "-" if iso is None else relative(datetime.fromisoformat(iso), self.now())

    def sentence(self, text: str) -> str:
        """A sentence of the API, in which each exact time is followed by how far away it is."""

        def add(match: re.Match[str]) -> str:
            moment = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            return f"{match[0]} ({relative(moment, self.now())})"

        return re.sub(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", add, text)


def relative(moment: datetime, now: datetime) -> str:
    """How far a moment is from now."""
    return f"in {duration(moment - now)}" if moment > now else f"{duration(now - moment)} ago"


def duration(span: timedelta) -> str:
    """The two largest units, as the API writes them."""
    seconds = round(span.total_seconds())
    for index, (name, size) in enumerate(_UNITS):
        if seconds >= size:
            text = f"{seconds // size} {name}"
            if index + 1 < len(_UNITS):
                following, following_size = _UNITS[index + 1]
                second = seconds % size // following_size
                text += f" {second} {following}" if second else ""
            return text
    return "0 s"


def cost(run: Mapping[str, Any]) -> str | None:
    """The cost of a run's job, with its factors; None where it is in no queue."""
    it = run.get("cost")
    if it is None:
        return None
    hours = it["node_seconds"] / 3600
    return (
        f"{it['amount']:,.2f} {it['currency']}: {hours:,.2f} node-hours of {it['flavor']} "
        f"({it['nodes']} nodes) at {it['price_per_node_hour']:,.2f}, queue {it['queue']}"
    )


def costs(of: Sequence[Mapping[str, Any]], currency: str | None) -> str | None:
    """The costs of each month, in one line; None where there are none."""
    shown = [
        f"{it['month']}: {it['amount']:,.2f} {currency} in queue {it['queue']} "
        f"(runs: {it['runs']}, node-hours: {it['node_hours']:,.2f})"
        for it in of
    ]
    return "; ".join(shown) or None


def state(name: str) -> Text:
    """A state in its colour."""
    return Text(name, style=COLOURS.get(name, ""))


def result(run: Mapping[str, Any]) -> str:
    """The outcome of a run, on one line."""
    if run["error"]:
        return f"{run['error']['type']}: {run['error']['message']}"
    if run["reason"]:
        return str(run["reason"])
    metrics = ", ".join(f"{name} {value:.5g}" for name, value in (run["metrics"] or {}).items())
    if run["model"]:
        return f"model {run['model']['name']}:{run['model']['version']} ({metrics})"
    return metrics
