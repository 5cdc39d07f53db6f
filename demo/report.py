"""The report: for people a table, for programs one JSON document."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo.receivers import Received

LINE_CHARACTERS = 300
StoryState = Literal["ok", "late", "failed", "not played"]
MARKS: dict[StoryState, str] = {
    "ok": "[green]✓[/]",
    "late": "[yellow]✓ late[/]",
    "failed": "[red]✗[/]",
    "not played": "[yellow]- not played:[/]",
}


@dataclass(frozen=True, kw_only=True)
class StoryResult:
    """The result of one story. A late one had its outcome, on a machine that is slow or busy."""

    name: str
    state: StoryState
    seconds: float
    facts: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether it had its outcome."""
        return self.state in ("ok", "late")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of `make demo`; all facts were read back from the services."""

    stories: list[StoryResult]
    runs: list[dict[str, Any]]
    models: list[dict[str, Any]]
    notifications: list[Received]
    total_seconds: float

    @property
    def ok(self) -> bool:
        """Whether every story succeeded."""
        return all(story.ok for story in self.stories)

    def to_dict(self) -> dict[str, Any]:
        """The document of `make demo JSON=1`."""
        keys = ("id", "pipeline", "attempt", "state", "dataset_version", "job")
        return {
            "stories": [
                {**asdict(story), "ok": story.ok, "seconds": round(story.seconds, 1)}
                for story in self.stories
            ],
            "runs": [{key: run[key] for key in keys} for run in self.runs],
            "models": self.models,
            "notifications": [
                {"kind": each.kind, "channel": each.channel, "id": each.id}
                for each in self.notifications
            ],
            "total_seconds": round(self.total_seconds, 1),
        }


def summarise_error(error: BaseException) -> str:
    """An error in one line of at most 300 characters; of a group of errors, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())[:LINE_CHARACTERS]


def failure_line(result: StoryResult, runs: dict[str, str], logs: Path) -> str:
    """A failed story as one line of JSON.

    Args:
        result: its error is among the facts.
        runs: the state of each run by its id, as far as the app answered.
        logs: the folder of the services' logs.
    """
    error = result.facts["error"]
    document = {"story": result.name, "state": result.state, "seconds": round(result.seconds, 1)}
    return json.dumps({**document, "error": error, "runs": runs, "logs": str(logs)})


def show(report: Report, console: Console) -> None:
    """Print the tables."""
    stories = Table(title="What happened", title_justify="left", show_lines=True)
    stories.add_column("")
    stories.add_column("story, and what was read back")
    stories.add_column("seconds", justify="right")
    for story in report.stories:
        facts = " · ".join(
            f"{key.replace('_', ' ')}: {_text(value)}" for key, value in story.facts.items()
        )
        stories.add_row(
            MARKS[story.state], f"[bold]{story.name}[/]\n{escape(facts)}", f"{story.seconds:.1f}"
        )
    console.print(stories)

    runs = Table(title="Runs (pipeline, dataset version, attempt)", title_justify="left")
    runs.add_column("run", no_wrap=True)
    for heading in ("state", "accuracy", "model version"):
        runs.add_column(heading)
    for run in report.runs:
        accuracy = (run["metrics"] or {}).get("accuracy")
        runs.add_row(
            run["id"],
            run["state"],
            "" if accuracy is None else f"{accuracy:.4f}",
            run["model"]["version"] if run["model"] else "",
        )
    console.print(runs)
    told = Counter(each.channel for each in report.notifications)
    console.print(
        f"{len(report.models)} model versions registered; notifications received: "
        + ", ".join(f"{count} on {channel}" for channel, count in sorted(told.items()))
    )
    console.print(f"{report.total_seconds:.0f} s in all")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.4f}"
    return ", ".join(value) if isinstance(value, list) else str(value)
