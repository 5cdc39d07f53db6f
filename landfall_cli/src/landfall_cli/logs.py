"""landfall logs: the log of a run's job, and the utilisation of its nodes."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from landfall_cli.output import Output, state
from landfall_cli.runs import BAD_ENDS, GOOD_ENDS, POLL_SECONDS, Run
from landfall_cli.session import Exit, Session

UTILISATION = (
    ("CPU", "cpu_percent"),
    ("memory", "memory_percent"),
    ("GPU", "gpu_percent"),
    ("GPU memory", "gpu_memory_percent"),
)


def logs(
    session: Session,
    run: Run,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    lines: Annotated[int, typer.Option(min=1, max=5000, help="How many of the last.")] = 100,
    file: Annotated[
        str | None, typer.Option(help="A log of the job; that of rank 0 by default.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="A job of the run: of a check, a trial or a step; the current by default."
        ),
    ] = None,
) -> None:
    """Print the last lines of the log of a run's job.

    With --follow, the exit code is 1 if the job failed or was cancelled, or there was none.
    """
    offset: int | None = None
    told: dict[str, Any] = {}
    while True:
        document = session.api.get(
            f"/api/runs/{run}/logs", job=job, file=file, lines=lines, offset=offset
        )
        if document["text"] or _head(document) != told:
            session.output.show(document, functools.partial(_show, session.output, told))
        told = _head(document)
        is_over = document["has_ended"] and not document["more"]
        if is_over or not follow:
            break
        # The default may change: when a check has passed, or another trial begins.
        job, file = document["job"] or job, document["file"] or file
        offset = document["next_offset"]
        if not document["more"]:
            time.sleep(POLL_SECONDS)
    if not follow:
        return
    run_state = document["run_state"]
    goes_on = run_state not in GOOD_ENDS | BAD_ENDS
    ending = f": landfall runs watch {run} follows it" if goes_on else ""
    session.output.note(Text(f"run {run} is ").append_text(state(run_state)).append(ending))
    if document["state"] != "completed" or run_state in BAD_ENDS:
        raise typer.Exit(Exit.FAILED)


def _head(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of the job once, and again when it has changed."""
    return {name: document[name] for name in ("job", "state", "file", "utilisation", "note")}


def _show(output: Output, told: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    head = _head(document)
    if head["job"] is not None and head != told:
        used = [
            f"{name} {document['utilisation'][field]:.0f} %"
            for name, field in UTILISATION
            if document["utilisation"] and document["utilisation"][field] is not None
        ]
        known = ", ".join(used) or document["no_utilisation"]
        parts = [f", {document['file']}" if document["file"] else "", f"; {known}" if known else ""]
        named = Text(f"job {document['job']}: ").append_text(state(document["state"] or "unknown"))
        output.line(named.append("".join(parts)))
    if document["note"] not in (None, told.get("note")):
        output.line(Text(document["note"], style="dim"))
    for line in document["text"].split("\n")[:-1]:
        output.line(line)
