"""landfall pipelines list|get|train|pause|resume|release."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from landfall_cli.output import costs, state
from landfall_cli.session import By, OptionalReason, Reason, Session, Yes, command

app = typer.Typer(no_args_is_help=True, help="Pipelines: what each does, or waits for and why.")


Name = Annotated[str, typer.Argument(help="The pipeline's name.")]


@command(app, "list")
def list_pipelines(session: Session) -> None:
    """List all pipelines."""

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


@command(app, "get")
def get_pipeline(session: Session, name: Name) -> None:
    """Show one pipeline with its zones and its champion."""

    def people(document: Any) -> None:
        output, success = session.output, document["last_success"]
        champion = document["champion"]
        held = [zone["held"] for zone in document["zones"] if zone["held"]]
        troubles = [each for zone in document["zones"] for each in zone["troubles"]]
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
                "trouble": "; ".join(
                    f"{each['kind']}, {output.ago(each['since'])}: {each['message']}"
                    for each in troubles
                )
                or None,
                "next attempt": output.ago(document["next_attempt_at"])
                if document["next_attempt_at"]
                else None,
            }
        )

    session.output.show(session.api.get(f"/api/pipelines/{name}"), people)


@command(app)
def train(
    session: Session,
    name: Name,
    *,
    reason: Reason,
    parameter: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of a declared parameter.")
    ] = None,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Train on the data that is there, also if it was trained on before."""
    session.act(
        f"Train {name}?",
        f"/api/pipelines/{name}/train",
        lambda done: f"requested: follow it with landfall runs watch {done['id']}",
        parameters=dict(_assignment(each) for each in parameter or ()),
        reason=reason,
        by=by,
        yes=yes,
    )


def _assignment(text: str) -> tuple[str, Any]:
    """Name and value of `NAME=VALUE`; a value that is no JSON is text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@command(app)
def pause(session: Session, name: Name, *, reason: Reason, by: By = None, yes: Yes = False) -> None:
    """Pause a pipeline: landed data is frozen and held, and no run starts. Active runs continue."""

    def say(done: Any) -> str:
        paused = done["paused"]
        already = "" if done["changed"] else " already"
        when = session.output.ago(paused["at"])
        return f"{name} is paused{already}, by {paused['by']} {when}: {paused['reason']}"

    path = f"/api/pipelines/{name}/pause"
    session.act(f"Pause {name}?", path, say, reason=reason, by=by, yes=yes)


@command(app)
def resume(
    session: Session,
    name: Name,
    *,
    reason: OptionalReason = None,
    by: By = None,
    yes: Yes = False,
) -> None:
    """End a pause, and start the training on held batches."""

    def say(done: Any) -> str:
        what = "resumed" if done["changed"] else "not paused"
        opened = ", ".join(done["landings"])
        return f"{name} is {what}" + (f"; landings: {opened}" if opened else "")

    path = f"/api/pipelines/{name}/resume"
    session.act(f"Resume {name}?", path, say, reason=reason, by=by, yes=yes)


@command(app)
def release(
    session: Session,
    name: Name,
    version: Annotated[str, typer.Argument(help="The dataset version, as `get` shows it.")],
    *,
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Release a held batch for training."""
    session.act(
        f"Train on the held batch {version} of {name}?",
        f"/api/pipelines/{name}/release",
        lambda done: f"released {done['dataset_version']}; {done['id']} lists the zone again",
        dataset_version=version,
        reason=reason,
        by=by,
        yes=yes,
    )
