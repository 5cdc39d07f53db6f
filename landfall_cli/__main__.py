"""`python -m landfall_cli`, or `landfall` for short."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from landfall_cli import dead_letters, pipelines, runs
from landfall_cli.connection import KEY_VARIABLE, URL_VARIABLE
from landfall_cli.doctor import doctor
from landfall_cli.session import Options, open_session, with_exit_codes

app = typer.Typer(
    name="landfall",
    no_args_is_help=True,
    help="Landfall for people on call. Exit codes: 0 done, 1 failed, 2 wrong usage, "
    "3 the API cannot be reached, 4 not found, 5 refused.",
)
app.add_typer(runs.app, name="runs")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(dead_letters.app, name="dead-letters")
app.command()(doctor)


@app.callback()
def options(
    context: typer.Context,
    *,
    url: Annotated[
        str | None, typer.Option(help=f"The function app's address; {URL_VARIABLE} by default.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help=f"A function key; {KEY_VARIABLE} by default.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the API's document.")] = False,
) -> None:
    """Keep the options for the command."""
    context.obj = Options(url=url, key=key, as_json=json)


@app.command()
@with_exit_codes
def explain(
    context: typer.Context,
    blob: Annotated[str, typer.Argument(help="Its URL, or container/path.")],
    model: Annotated[
        str | None, typer.Option(help="A version of the model: was it trained on the blob?")
    ] = None,
) -> None:
    """What became of a blob, and why."""
    session = open_session(context)

    def people(document: Any) -> None:
        in_model, trained = document.get("in_model"), document.get("model")
        session.output.facts(
            {
                "blob": document["blob"],
                "state": document["state"],
                "why": session.output.sentence(document["reason"]),
                "pipeline": document["pipeline"],
                "dataset": document.get("dataset_version"),
                "run": document.get("run"),
                "model": None if trained is None else f"{trained['name']}:{trained['version']}",
                "in the model": None
                if in_model is None
                else f"{in_model['contained']}: {in_model['reason']}",
            }
        )

    session.output.show(session.api.get("/api/explain", blob=blob, model=model), people)


if __name__ == "__main__":
    app()
