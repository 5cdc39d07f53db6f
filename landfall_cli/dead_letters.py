"""landfall dead-letters list|show|redrive|discard."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from landfall_cli.options import By, OptionalReason, Yes
from landfall_cli.session import Exit, asked_by, complain, open_session, with_exit_codes

app = typer.Typer(no_args_is_help=True, help="Dead letters: what gave up.")

Ids = Annotated[list[int] | None, typer.Argument(help="Their numbers, as `list` shows them.")]


@app.command("list")
@with_exit_codes
def list_letters(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 50,
    after: Annotated[int | None, typer.Option(help="Those with greater numbers.")] = None,
) -> None:
    """Dead letters, oldest first."""
    session = open_session(context)

    def people(document: Any) -> None:
        output, letters = session.output, document["dead_letters"]
        if not letters:
            output.line("There is no dead letter: nothing gave up.")
            return
        rows = [
            (
                str(letter["id"]),
                Text(letter["reason"], style="red"),
                letter["run"] or letter["kind"],
                output.ago(letter["enqueued_at"]),
                letter["description"],
            )
            for letter in letters
        ]
        output.table(("ID", "ERROR", "OF", "SINCE", "DESCRIPTION"), rows)
        output.further(document["next"])

    session.output.show(session.api.get("/api/dead-letters", limit=limit, after=after), people)


@app.command()
@with_exit_codes
def show(context: typer.Context, number: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    """One dead letter with its body and what to do about it."""
    session = open_session(context)

    def people(letter: Any) -> None:
        session.output.facts(
            {
                "error": Text(letter["reason"], style="red"),
                "description": letter["description"],
                "what to do": letter["remedy"],
                "kind": letter["kind"],
                "run": letter["run"],
                "message": letter["message_id"],
                "since": session.output.ago(letter["enqueued_at"]),
            }
        )
        session.output.line("")
        session.output.line(letter["body"])

    session.output.show(session.api.get(f"/api/dead-letters/{number}"), people)


@app.command()
@with_exit_codes
def redrive(
    context: typer.Context,
    ids: Ids = None,
    *,
    error: Annotated[str | None, typer.Option(help="All with this error.")] = None,
    reason: OptionalReason = None,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Send dead letters again, each as its next attempt. Fix the cause first."""
    if bool(ids) == bool(error):
        complain("name dead letters by their ids, or all of one --error")
        raise typer.Exit(Exit.USAGE)
    session = open_session(context)
    what = f"all with {error}" if error else f"dead letters {', '.join(map(str, ids or ()))}"
    session.confirm(f"Redrive {what}?", is_confirmed=yes)
    body: dict[str, Any] = {"error": error} if error else {"ids": ids}
    if reason:
        body["reason"] = reason
    document = session.api.post("/api/dead-letters/redrive", body | asked_by(by))
    session.output.show(
        document,
        lambda shown: session.output.line(f"sent again: {', '.join(shown['redriven']) or 'none'}"),
    )


@app.command()
@with_exit_codes
def discard(
    context: typer.Context,
    ids: Annotated[list[int], typer.Argument(help="Their numbers, as `list` shows them.")],
    *,
    reason: Annotated[str, typer.Option(help="Why; it is kept with their content.")],
    by: By = None,
    yes: Yes = False,
) -> None:
    """Remove dead letters for good; their content stays in the records container."""
    session = open_session(context)
    session.confirm(f"Discard dead letters {', '.join(map(str, ids))}?", is_confirmed=yes)
    document = session.api.post(
        "/api/dead-letters/discard", {"ids": ids, "reason": reason, **asked_by(by)}
    )
    session.output.show(
        document,
        lambda shown: session.output.line(f"discarded: {', '.join(map(str, shown['discarded']))}"),
    )
