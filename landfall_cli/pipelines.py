"""landfall pipelines list|get."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from landfall_cli.output import state
from landfall_cli.session import open_session, with_exit_codes

app = typer.Typer(no_args_is_help=True, help="Pipelines: what each does, or waits for and why.")


@app.command("list")
@with_exit_codes
def list_pipelines(context: typer.Context) -> None:
    """Every pipeline."""
    session = open_session(context)

    def people(document: Any) -> None:
        output = session.output
        rows = [
            (
                state(each["state"]),
                each["name"],
                output.ago(each["last_success"] and each["last_success"]["since"]),
                output.sentence(each["sentence"]),
            )
            for each in document["pipelines"]
        ]
        output.table(("STATE", "PIPELINE", "LAST SUCCESS", "WHY"), rows)

    session.output.show(session.api.get("/api/pipelines"), people)


@app.command("get")
@with_exit_codes
def get_pipeline(
    context: typer.Context, name: Annotated[str, typer.Argument(help="The pipeline's name.")]
) -> None:
    """One pipeline with its zones and its champion."""
    session = open_session(context)

    def people(document: Any) -> None:
        output, success = session.output, document["last_success"]
        champion = document["champion"]
        output.facts(
            {
                "pipeline": document["name"],
                "state": state(document["state"]),
                "why": output.sentence(document["sentence"]),
                "zone": f"{document['container']}/{document['prefix']}",
                "champion": document["champion_problem"]
                or (f"version {champion['version']}" if champion else "none yet"),
                "last success": f"{success['id']}, {output.ago(success['since'])}"
                if success
                else "none yet",
                "next attempt": output.ago(document["next_attempt_at"])
                if document["next_attempt_at"]
                else None,
            }
        )

    session.output.show(session.api.get(f"/api/pipelines/{name}"), people)
