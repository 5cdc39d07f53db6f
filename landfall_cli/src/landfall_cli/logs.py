"""landfall logs: the log of a run's job, and the utilisation of its nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from landfall_cli.runs import BAD_ENDS, POLL_SECONDS, Run
from landfall_cli.session import Exit, Session


def logs(
    session: Session,
    run: Run,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    lines: Annotated[int, typer.Option(min=1, max=5000, help="How many of the last.")] = 100,
    file: Annotated[str | None, typer.Option(help="Another log than that of rank 0.")] = None,
    job: Annotated[str | None, typer.Option(help="The job of a check, a trial or a step.")] = None,
) -> None:
    """Print the last lines of the log of a run's job.

    With --follow, the exit code is 1 if the job failed or was cancelled, or the run ended without.
    """
    output, offset, told = session.output, None, ""
    while True:
        answer = session.follow(
            f"/api/runs/{run}/logs", job=job, file=file, lines=lines, offset=offset
        )
        head = _head(answer)
        text = answer["text"] if head == told else f"{head}\n{answer['text']}"
        if text:
            output.show(answer, lambda _, text=text: output.line(text.removesuffix("\n")))
        is_over = answer["has_ended"] and not answer["more"]
        if is_over or not follow:
            break
        # The default may change: when a check has passed, or another trial begins.
        job, file = answer["job"] if answer["state"] else job, answer["file"] or file
        offset, told = answer["next_offset"], head
        if not answer["more"]:
            time.sleep(POLL_SECONDS)
    if follow:
        output.note(f"run {run} is {answer['run_state']}; landfall runs get {run} has more of it")
        if answer["state"] != "completed" or answer["run_state"] in BAD_ENDS:
            raise typer.Exit(Exit.FAILED)


def _head(answer: Mapping[str, Any]) -> str:
    """What is told of the job once, and again when it has changed."""
    used = answer["utilisation"]
    shares = [f"{of} {share:.0f} %" for of, share in used["percent"].items()] if used else []
    job = f"job {answer['job']}: {answer['state']}" if answer["state"] else None
    told = (job, answer["file"], ", ".join(shares) or answer["no_utilisation"], answer["note"])
    return "; ".join(filter(None, told))
