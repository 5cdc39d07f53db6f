"""`python -m landfall_cli`, also installed as `landfall`."""

from __future__ import annotations

import functools
import os
import webbrowser
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text

from landfall_cli import approvals, data, dead_letters, models, pipelines, rollouts, runs
from landfall_cli.check import check
from landfall_cli.connection import (
    KEY_VARIABLE,
    SCOPE_VARIABLE,
    URL_VARIABLE,
    Connection,
    find_connection,
)
from landfall_cli.deploy import deploy, rollback
from landfall_cli.doctor import doctor
from landfall_cli.forgotten import forget, forgotten
from landfall_cli.logs import logs
from landfall_cli.output import state
from landfall_cli.promote import promote
from landfall_cli.queue import queue
from landfall_cli.reproduce import reproduce
from landfall_cli.session import After, Session, command
from landfall_cli.what_if import what_if

app = typer.Typer(
    name="landfall",
    no_args_is_help=True,
    help="Landfall for people on call. Exit codes: 0 done, 1 failed, 2 wrong usage, "
    "3 the API cannot be reached, 4 not found, 5 refused.",
)
app.add_typer(runs.app, name="runs")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.add_typer(rollouts.app, name="rollouts")
app.add_typer(approvals.app, name="approvals")
app.add_typer(dead_letters.app, name="dead-letters")
command(app)(deploy)
command(app)(rollback)
command(app)(promote)
command(app)(reproduce)
command(app)(check)
command(app)(doctor)
command(app)(logs)
command(app)(queue)
command(app)(forget)
command(app)(forgotten)
command(app, "what-if")(what_if)


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
    scope: Annotated[
        str | None,
        typer.Option(
            help="Sign in with Entra for this scope, such as api://CLIENT-ID/.default; "
            f"{SCOPE_VARIABLE} by default."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the API's document.")] = False,
) -> None:
    """Make the session of the command from the options."""
    connect = functools.partial(find_connection, url, key, os.environ, Path.cwd(), scope=scope)
    context.obj = Session(connect, as_json=json)


@command(app)
def explain(
    session: Session,
    blob: Annotated[str, typer.Argument(help="Its URL, or container/path.")],
    model: Annotated[
        str | None, typer.Option(help="A version of the model: was it trained on the blob?")
    ] = None,
) -> None:
    """Show a blob's history, and the reason for each decision."""

    def people(document: Any) -> None:
        in_model, trained = document.get("in_model"), document.get("model")
        session.output.facts(
            {
                "blob": document["blob"],
                "state": state(document["state"]),
                "why": session.output.sentence(document["reason"]),
                "pipeline": document["pipeline"],
                "dataset": document.get("dataset_version"),
                "run": document.get("run"),
                "model": None if trained is None else f"{trained['name']}:{trained['version']}",
                "models that saw it": None
                if not document.get("models")
                else ", ".join(_seen(each) for each in document["models"]),
                "in the model": None
                if in_model is None
                else f"{in_model['contained']}: {in_model['reason']}",
            }
        )

    session.output.show(session.api.get("/api/explain", blob=blob, model=model), people)


@command(app)
def alarms(session: Session) -> None:
    """Show the active silence alarms: expected events that did not happen."""

    def people(document: Any) -> None:
        output, listed = session.output, document["alarms"]
        if not listed:
            output.line("No silence alarm is on.")
            return
        rows = [
            (
                Text(each["kind"], style="red"),
                each["about"],
                output.ago(each["since"]),
                output.sentence(each["message"]),
            )
            for each in listed
        ]
        output.table(("ALARM", "OF", "SINCE", "WHY"), rows)

    session.output.show(session.api.get("/api/alarms"), people)


@command(app)
def actions(
    session: Session,
    *,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: After = None,
) -> None:
    """Show actions over the API, newest first: who, when, what and why."""

    def people(document: Any) -> None:
        output = session.output
        rows = [
            (output.ago(each["at"]), each["by"], f"{each['action']} {each['on']}", each["reason"])
            for each in document["actions"]
        ]
        if not rows:
            output.line("There is no action: nobody has changed anything over the API yet.")
            return
        output.table(("WHEN", "WHO", "WHAT", "WHY"), rows)
        output.further(document["next"])

    session.output.show(session.api.get("/api/actions", limit=limit, after=after), people)


@command(app, "open")
def open_page(
    session: Session,
    screen: Annotated[
        str, typer.Argument(help="Such as now, pipelines/NAME, runs/ID, models/NAME.")
    ] = "now",
    *,
    prints: Annotated[
        bool, typer.Option("--print", help="Print the link with its key; open nothing.")
    ] = False,
) -> None:
    """Open the operators' page in a browser, with the key of this command line."""
    link = page_link(session.api.connection, screen)
    if prints or not webbrowser.open(link):
        session.output.line(link)


def page_link(connection: Connection, screen: str) -> str:
    """The page's address; the key is in the fragment (`#`), which browsers do not send."""
    page = f"{connection.url}/api/ui"
    if not connection.key:
        return f"{page}#/{screen}"
    return f"{page}#key={quote(connection.key, safe='')}&screen={quote(screen, safe='')}"


def _seen(model: Any) -> str:
    """Describe a model version that was trained on the blob."""
    content = "" if model["is_current"] else ", with other content"
    return f"version {model['version']} ({model['stage']}{content})"


if __name__ == "__main__":
    app(prog_name="landfall")  # shell completion needs this name, also for `python -m`
