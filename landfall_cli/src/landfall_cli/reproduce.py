"""landfall reproduce: train a version of a model again, as it was, and compare the two."""

from __future__ import annotations

from typing import Annotated

import typer

from landfall_cli.models import find_version
from landfall_cli.runs import follow
from landfall_cli.session import By, Reason, Session, Yes


def reproduce(
    session: Session,
    model: Annotated[str, typer.Argument(metavar="MODEL:VERSION", help="What to train again.")],
    *,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="By how much the gate's metrics may differ, relative to the greater of two "
            "values; 0.001 by default.",
        ),
    ] = None,
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Train a version of a model again, as it was, and say whether bits or metrics are equal.

    It has the frozen data, configuration, code, environment and seed; nothing is registered. The
    exit code is 1 if it differs. A command that is repeated meanwhile follows the same run.
    """
    pipeline, version = find_version(session, model)
    session.confirm(f"Train {pipeline['model']}:{version} again?", is_confirmed=yes)
    path = f"/api/pipelines/{pipeline['name']}/models/{version}/reproduce"
    follow(session, session.request(path, tolerance=tolerance, reason=reason, by=by)["id"])
