"""landfall runs list|get|watch|cancel|retry."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from landfall_cli.output import Output, assignments, cost, duration, exact, result, state
from landfall_cli.session import After, By, Exit, OptionalReason, Reason, Session, Yes, command

app = typer.Typer(no_args_is_help=True, help="Runs: each one attempt at one dataset version.")
GOOD_ENDS = frozenset({"succeeded", "reproduced", "not_promoted", "not_needed", "superseded"})
BAD_ENDS = frozenset({"failed", "rejected", "cancelled", "held", "not_reproduced"})
POLL_SECONDS = 2.0

Run = Annotated[str, typer.Argument(help="The run's id.")]


@command(app, "list")
def list_runs(  # noqa: PLR0913 - an option each
    session: Session,
    *,
    pipeline: Annotated[str | None, typer.Option(help="Only of this pipeline.")] = None,
    state_: Annotated[
        str | None,
        typer.Option(
            "--state", help="Only in these states, by commas; or unfinished, needs-a-human."
        ),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="Begun at or after it, ISO 8601 with a timezone.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="Begun at or before it.")] = None,
    data: Annotated[str | None, typer.Option(help="Only on this dataset version.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Only the run that registered NAME:VERSION.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: After = None,
) -> None:
    """List the runs, newest first."""
    document = session.api.get(
        "/api/runs",
        pipeline=pipeline,
        state=state_,
        from_=from_,
        to=to,
        data=data,
        model=model,
        limit=limit,
        after=after,
    )

    def people(document: Any) -> None:
        output = session.output
        if not document["runs"]:
            output.line("No run matches.")
            return
        rows = [
            (state(run["state"]), run["id"], output.ago(run["created_at"]), result(run))
            for run in document["runs"]
        ]
        output.table(("STATE", "RUN", "BEGAN", "RESULT"), rows)
        output.further(document["next"])

    session.output.show(document, people)


@command(app, "get")
def get_run(session: Session, run: Run) -> None:
    """Show one run with its timeline, error, remedy and the last lines of its log."""
    document = session.api.get(f"/api/runs/{run}")
    session.output.show(document, lambda shown: show_run(session.output, shown))


@command(app)
def watch(session: Session, run: Run) -> None:
    """Follow a run until it has ended; exit code 1 if it failed, was held or was cancelled."""
    follow(session, run)


def follow(session: Session, run: str) -> None:
    """Say each state of a run until it has ended, and then its result.

    Raises:
        typer.Exit: it did not end well.
    """
    shown = ""
    while True:
        document = session.follow(f"/api/runs/{run}")
        following = _following(document)
        if document.get("state", shown) != shown:
            shown = document["state"]
            session.output.note(Text(f"{exact(document['since'])}  ").append_text(state(shown)))
        if following is not None:
            run, shown = following, ""
        elif _has_ended(document):
            break
        else:
            time.sleep(POLL_SECONDS)

    def people(ended: Any) -> None:
        session.output.line(result_of(ended))
        _show_differences(session.output, ended.get("reproduction"))

    session.output.show(document, people)
    if shown in BAD_ENDS or document.get("phase") == "failed":
        raise typer.Exit(Exit.FAILED)


def _following(document: Mapping[str, Any]) -> str | None:
    """The id to watch next: the run of a request, or the next attempt of a failed run."""
    if "timeline" not in document:
        return document["run"]
    if document["state"] == "retrying":
        return document["links"]["next_attempt"]
    return None


def _has_ended(document: Mapping[str, Any]) -> bool:
    if "timeline" not in document:
        return document["phase"] in ("ended", "failed")
    return document["state"] in GOOD_ENDS | BAD_ENDS


@command(app)
def report(session: Session, run: Run) -> None:
    """Write the HTML report of a run's data check to standard output."""
    document = session.api.get(f"/api/runs/{run}/report")
    session.output.show(document, lambda shown: typer.echo(shown["html"]))


@command(app)
def cancel(
    session: Session,
    run: Run,
    *,
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Cancel a run and its job; no model is registered, and there is no next attempt."""
    session.act(
        f"Cancel {run}?",
        f"/api/runs/{run}/cancel",
        lambda _: f"{run} is asked to end: follow it with `landfall runs watch {run}`",
        reason=reason,
        by=by,
        yes=yes,
    )


@command(app)
def retry(
    session: Session,
    run: Run,
    *,
    reason: OptionalReason = None,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Redrive a failed run as its next attempt. Fix the cause first."""
    session.act(
        f"Redrive {run}?",
        "/api/redrive",
        lambda done: f"sent again: {', '.join(done['redriven'])}",
        run=run,
        reason=reason,
        by=by,
        yes=yes,
    )


def result_of(document: Mapping[str, Any]) -> str:
    """The outcome of a run, or of a request."""
    if "timeline" in document:
        return result(document)
    return f"{document['id']}: {document['outcome'] or document['phase']}"


def show_run(output: Output, run: Mapping[str, Any]) -> None:
    """Print a run or a landing for people."""
    if "timeline" not in run:
        output.facts({name: str(value) for name, value in run.items() if value is not None})
        return
    compute = run["compute"]
    output.facts(
        {
            "run": run["id"],
            "state": state(run["state"]).append(f", {output.ago(run['since'])}"),
            "result": result(run) or None,
            "what to do": run["remedy"],
            "dataset": f"{run['dataset_version']}, {run['blobs']} blobs",
            "compute": None
            if compute is None
            else f"{compute['nodes']} x {compute['size']} ({compute['cluster']})",
            "parameters": assignments(run["parameters"]),
            "cost": cost(run) or run.get("no_cost"),
            "job": run["job_url"] or run["job"],
            "previous": run["links"]["previous_attempt"],
            "next": run["links"]["next_attempt"]
            or (run["next_attempt_at"] and output.ago(run["next_attempt_at"])),
            "redriven from": run["links"]["redriven_from"],
            "redriven as": run["links"]["redriven_as"],
            "superseded by": run["links"]["superseded_by"],
            "data check": _check(run["data_check"]),
            "champion check": _check(run["champion_check"]),
            "gate": (run.get("gate") or {}).get("sentence"),
            "reproduces": run.get("reproduces"),
        }
    )
    _show_differences(output, run.get("reproduction"))
    _show_slices(output, run.get("gate"))
    rows: list[tuple[Text, str, str]] = []
    for step in run["timeline"]:
        span = "-"
        if step["ended_at"]:
            ended_at = datetime.fromisoformat(step["ended_at"])
            span = duration(ended_at - datetime.fromisoformat(step["began_at"]))
        stage = f"  ({step['stage']})" if step["stage"] else ""
        rows.append((state(step["state"]).append(stage), exact(step["began_at"]), span))
    output.line("")
    output.table(("STATE", "FROM", "FOR"), rows)
    for line in ("", *run["log"]) if run["log"] else ():
        output.line(line)


def _show_slices(output: Output, gate: Mapping[str, Any] | None) -> None:
    """The slices, the worst ones first."""
    if gate is None or not gate["slices"]:
        return
    factor, unit = (100, " points") if gate["unit"] == "points" else (1, "")
    rows = [
        (
            measured["name"],
            f"{measured['lead'] * factor:+.3g}{unit}",
            f"{measured['p']:.2g}",
            str(measured["samples"]),
            "" if measured["outcome"] == "kept" else measured["outcome"],
        )
        for measured in gate["slices"]
    ]
    output.line("")
    output.table(("SLICE", "CHANGE", "P", "SAMPLES", ""), rows)
    if gate["more_slices"]:
        output.line(f"{gate['more_slices']} more slices are better than these.")


def _show_differences(output: Output, reproduction: Mapping[str, Any] | None) -> None:
    """What differs between a model and its reproduction, by name."""
    if reproduction is None or not reproduction["differences"]:
        return
    rows = [
        (it["what"], it["original"] or "-", it["again"] or "-")
        for it in reproduction["differences"]
    ]
    output.line("")
    output.table(("DIFFERS", "ORIGINAL", "AGAIN"), rows)
    if reproduction["more"]:
        output.line(f"{reproduction['more']} more things differ.")


def _check(check: Mapping[str, Any] | None) -> str | None:
    """The verdict of a check on one line, with what people look at next."""
    if check is None:
        return None
    more = (
        ("saved", check["saved"]),
        ("cost", check["cost"] and cost(check)),
        ("report", check["report"]),
        ("job", check["job_url"]),
    )
    facts = [f"{name}: {value}" for name, value in more if value]
    return "; ".join([check["message"], *facts])
