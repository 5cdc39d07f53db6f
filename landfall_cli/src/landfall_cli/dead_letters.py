"""landfall dead-letters list|show|redrive|discard."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from landfall_cli.session import By, Exit, OptionalReason, Session, Yes, command, complain

app = typer.Typer(no_args_is_help=True, help="Dead letters: what gave up.")

Ids = Annotated[list[int] | None, typer.Argument(help="Their numbers, as `list` shows them.")]


@command(app, "list")
def list_letters(
    session: Session,
    *,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 50,
    after: Annotated[int | None, typer.Option(help="Those with greater numbers.")] = None,
) -> None:
    """List the dead letters, oldest first."""

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


@command(app)
def show(session: Session, number: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    """Show one dead letter with its body and its remedy."""

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


@command(app)
def redrive(
    session: Session,
    ids: Ids = None,
    *,
    error: Annotated[str | None, typer.Option(help="All with this error.")] = None,
    reason: OptionalReason = None,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Redrive dead letters, each as its next attempt. Fix the cause first."""
    if bool(ids) == bool(error):
        complain("name dead letters by their ids, or all of one --error")
        raise typer.Exit(Exit.USAGE)
    what = f"all with {error}" if error else f"dead letters {', '.join(map(str, ids or ()))}"
    session.act(
        f"Redrive {what}?",
        "/api/dead-letters/redrive",
        lambda done: f"sent again: {', '.join(done['redriven']) or 'none'}",
        error=error or None,
        ids=ids or None,
        reason=reason or None,
        by=by,
        yes=yes,
    )


@command(app)
def discard(
    session: Session,
    ids: Annotated[list[int], typer.Argument(help="Their numbers, as `list` shows them.")],
    *,
    reason: Annotated[str, typer.Option(help="Why; it is kept with their content.")],
    by: By = None,
    yes: Yes = False,
) -> None:
    """Remove dead letters from the queue; their content stays in the records container."""
    session.act(
        f"Discard dead letters {', '.join(map(str, ids))}?",
        "/api/dead-letters/discard",
        lambda done: f"discarded: {', '.join(map(str, done['discarded']))}",
        ids=ids,
        reason=reason,
        by=by,
        yes=yes,
    )
