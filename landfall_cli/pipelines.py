"""landfall pipelines list|get|pause|resume|release."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from landfall_cli.options import By, OptionalReason, Reason, Yes
from landfall_cli.output import costs, state
from landfall_cli.session import asked_by, open_session, with_exit_codes

app = typer.Typer(no_args_is_help=True, help="Pipelines: what each does, or waits for and why.")


Name = Annotated[str, typer.Argument(help="The pipeline's name.")]


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
def get_pipeline(context: typer.Context, name: Name) -> None:
    """One pipeline with its zones and its champion."""
    session = open_session(context)

    def people(document: Any) -> None:
        output, success = session.output, document["last_success"]
        champion = document["champion"]
        held = [zone["held"] for zone in document["zones"] if zone["held"]]
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
                "cost": costs(document["costs"], document["currency"]) or document["no_cost"],
                "settings": "; ".join(document["missing_settings"]) or None,
                "held": "; ".join(f"{each['dataset_version']}: {each['message']}" for each in held)
                or None,
                "next attempt": output.ago(document["next_attempt_at"])
                if document["next_attempt_at"]
                else None,
            }
        )

    session.output.show(session.api.get(f"/api/pipelines/{name}"), people)


@app.command()
@with_exit_codes
def pause(
    context: typer.Context, name: Name, *, reason: Reason, by: By = None, yes: Yes = False
) -> None:
    """Start no run of a pipeline: what lands is frozen and held. Runs under way go on."""
    session = open_session(context)
    session.confirm(f"Pause {name}?", is_confirmed=yes)
    document = session.api.post(f"/api/pipelines/{name}/pause", {"reason": reason, **asked_by(by)})

    def people(shown: Any) -> None:
        paused = shown["paused"]
        already = "" if shown["changed"] else " already"
        session.output.line(
            f"{name} is paused{already}, by {paused['by']} {session.output.ago(paused['at'])}: "
            f"{paused['reason']}"
        )

    session.output.show(document, people)


@app.command()
@with_exit_codes
def resume(
    context: typer.Context,
    name: Name,
    *,
    reason: OptionalReason = None,
    by: By = None,
    yes: Yes = False,
) -> None:
    """End a pause: what was held is trained on."""
    session = open_session(context)
    session.confirm(f"Resume {name}?", is_confirmed=yes)
    body = asked_by(by) | ({} if reason is None else {"reason": reason})
    document = session.api.post(f"/api/pipelines/{name}/resume", body)

    def people(shown: Any) -> None:
        what = "resumed" if shown["changed"] else "not paused"
        opened = ", ".join(shown["landings"])
        session.output.line(f"{name} is {what}" + (f"; landings: {opened}" if opened else ""))

    session.output.show(document, people)


@app.command()
@with_exit_codes
def release(
    context: typer.Context,
    name: Name,
    version: Annotated[str, typer.Argument(help="The dataset version, as `get` shows it.")],
    *,
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Let a held batch be trained on."""
    session = open_session(context)
    session.confirm(f"Train on the held batch {version} of {name}?", is_confirmed=yes)
    body = {"dataset_version": version, "reason": reason, **asked_by(by)}
    document = session.api.post(f"/api/pipelines/{name}/release", body)
    session.output.show(
        document, lambda shown: session.output.line(f"released; {shown['id']} lists the zone anew")
    )
