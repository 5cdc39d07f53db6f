"""landfall promote: the way of a model's version into another workspace."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from landfall_cli.deploy import POLL_SECONDS
from landfall_cli.models import find_version
from landfall_cli.output import exact
from landfall_cli.session import By, Exit, Reason, Session, Yes


def promote(
    session: Session,
    model: Annotated[str, typer.Argument(metavar="MODEL:VERSION", help="Such as digits:3.")],
    *,
    to: Annotated[str, typer.Option(help="The name of a workspace in workspaces.yml.")],
    reason: Reason,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop it instead.")] = False,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Copy a version, with its lineage, into another workspace, and follow it until it is there.

    The exit code is 1 if it is refused or rejected. A repeated command follows the same promotion.
    With `--cancel` it is refused at its next step; the exit code is 1 if it was promoted before.
    """
    pipeline, version = find_version(session, model)
    output = session.output
    verb = "Stop the promotion of" if cancel else "Promote"
    session.confirm(f"{verb} {pipeline['model']}:{version} to {to}?", is_confirmed=yes)
    path = f"/api/pipelines/{pipeline['name']}/models/{version}/promotions"
    done = session.request(f"{path}/cancel" if cancel else path, to=to, reason=reason, by=by)
    shown: tuple[Any, ...] = ()
    while True:
        found = session.follow(path, to=to)["promotions"]
        current = next(each for each in found if each["id"] == done["id"])
        now = current["state"], current["why"]
        if now != shown:
            shown, why = now, current["why"]
            told = f"{current['state']}{'' if why is None else f': {why}'}"
            output.note(output.sentence(f"{exact(current['since'])}  {told}"))
        if current["has_ended"] or current["broken"]:
            break
        time.sleep(POLL_SECONDS)

    def people(ended: Any) -> None:
        there = ended["registered"]
        if there is not None:
            output.line(
                f"{there['name']}:{there['version']} is in {to} (files: {ended['files']}, bytes: "
                f"{ended['bytes']}): {there['path'].rpartition('/workspaces/')[2]}"
            )

    output.show(current, people)
    if current["state"] != ("refused" if cancel else "promoted"):
        raise typer.Exit(Exit.FAILED)
