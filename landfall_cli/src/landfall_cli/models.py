"""landfall models list|get|card|promote."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from landfall_cli.api import Refused
from landfall_cli.output import assignments, cost
from landfall_cli.session import By, Reason, Session, Yes, command

app = typer.Typer(
    no_args_is_help=True, help="Models: versions, what they saw, which one is in service."
)

Pipeline = Annotated[str, typer.Argument(help="The pipeline's name.")]
Version = Annotated[str, typer.Argument(help="A version of its model.")]
STAGE_COLOURS = {"champion": "green", "rolled-back": "red", "archived": "dim"}


@command(app, "list")
def list_models(
    session: Session,
    pipeline: Pipeline,
    *,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    after: Annotated[int | None, typer.Option(help="The versions before this one.")] = None,
) -> None:
    """List the versions of a pipeline's model, newest first."""
    path = f"/api/pipelines/{pipeline}/models"

    def people(document: Any) -> None:
        output, metric = session.output, document["metric"]
        if not document["models"]:
            output.line("No model was registered yet.")
            return
        rows = [
            (
                _stage(each["stage"]),
                each["version"],
                _number(each["metrics"].get(metric)),
                _number(each["gain"], sign=True),
                output.ago(each["registered_at"]),
                each["run"] or "-",
            )
            for each in document["models"]
        ]
        output.table(("STAGE", "VERSION", metric.upper(), "GAIN", "REGISTERED", "RUN"), rows)
        if document["next"]:
            output.line(f"There are more: add --after {document['models'][-1]['version']}")

    session.output.show(session.api.get(path, limit=limit, after=after), people)


@command(app, "get")
def get_model(session: Session, pipeline: Pipeline, version: Version) -> None:
    """Show one version: its metrics and its lineage."""

    def people(model: Any) -> None:
        output, dataset = session.output, model["dataset"]
        output.facts(
            {
                "model": f"{model['name']}:{model['version']}",
                "stage": _stage(model["stage"]),
                "registered": output.ago(model["registered_at"]),
                "compared with": model["compared_with"],
                "gain": _number(model["gain"], sign=True),
                "run": model["run"],
                "dataset": model["dataset_version"]
                if dataset is None
                else f"{dataset['version']}, {dataset['blobs']} blobs, frozen "
                f"{output.ago(dataset['frozen_at'])}",
                "job": model["job"],
                "environment": model["environment"],
                "compute": None
                if model["compute"] is None
                else f"{model['compute']['nodes']} x {model['compute']['size']}",
                "cost": cost(model),
                "reason": model["reason"],
                "data difference": model["difference"],
                **{f"before {step}": told for step, told in model["approvals"].items()},
                "parameters": assignments(model["parameters"]),
                "rolls back to": model["rolls_back_to"],
            }
        )
        output.line("")
        output.facts({name: _number(value) for name, value in model["metrics"].items()})

    document = session.api.get(f"/api/pipelines/{pipeline}/models/{version}")
    session.output.show(document, people)


@command(app)
def card(session: Session, pipeline: Pipeline, version: Version) -> None:
    """Write the card of one version, as Markdown, to standard output."""
    document = session.api.get(f"/api/pipelines/{pipeline}/models/{version}/card")
    session.output.show(document, lambda shown: typer.echo(shown["markdown"], nl=False))


@command(app)
def promote(
    session: Session,
    pipeline: Pipeline,
    version: Version,
    *,
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Put a version in service: runs are compared with it, and its endpoint gets it in steps."""
    session.act(
        f"Put version {version} of {pipeline} in service?",
        f"/api/pipelines/{pipeline}/models/{version}/promote",
        changed,
        reason=reason,
        by=by,
        yes=yes,
    )


def changed(shown: Any) -> str:
    """What a change of the champion did."""
    already = "" if shown["changed"] else " already"
    return f"version {shown['champion']} is in service{already}. {shown['message']}"


def _stage(name: str) -> Text:
    return Text(name, style=STAGE_COLOURS.get(name, ""))


def _number(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.5g}" if sign else f"{value:.5g}"


def find_version(session: Session, model: str) -> tuple[Any, str]:
    """The pipeline and the version that MODEL:VERSION names.

    Raises:
        typer.BadParameter: it names no version.
        Refused: see `find_pipeline`.
    """
    name, _, version = model.partition(":")
    if not version:
        raise typer.BadParameter("name a version, as in digits:3", param_hint="MODEL:VERSION")
    return find_pipeline(session, name), version


def find_pipeline(session: Session, name: str) -> Any:
    """The pipeline with this model or endpoint; its own name counts, too.

    Raises:
        Refused: there is none, or more than one.
    """
    every = session.api.get("/api/pipelines")["pipelines"]
    matches = [each for each in every if each["name"] == name] or [
        each for each in every if name in (each["model"], each["endpoint"])
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(each["name"] for each in matches)
        raise Refused(400, {"detail": f"the pipelines {names} have {name!r}: name one of them"})
    raise Refused(404, {"detail": f"no pipeline has a model or an endpoint {name!r}"})
