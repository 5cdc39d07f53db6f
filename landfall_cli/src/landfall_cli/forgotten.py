"""landfall forget, landfall forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from landfall_cli.output import exact
from landfall_cli.session import By, Reason, Session, Yes


def forget(
    session: Session,
    *,
    blobs: Annotated[
        Path,
        typer.Option(
            exists=True, dir_okay=False, help="A file with a blob per line: URL, or container/path."
        ),
    ],
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Leave blobs out of every later dataset, also if they are uploaded again."""
    names = [line for line in blobs.read_text("utf-8").splitlines() if line]
    session.act(
        f"Forget {len(names)} blobs? This cannot be undone.",
        "/api/forgotten",
        lambda done: f"begun: see landfall forgotten {done['id']}",
        blobs=names,
        reason=reason,
        by=by,
        yes=yes,
    )


def forgotten(
    session: Session,
    request: Annotated[str | None, typer.Argument(help="A request's id; none for all.")] = None,
) -> None:
    """Show which dataset versions and models had forgotten blobs, those in service first."""
    output = session.output

    def people(document: Any) -> None:
        if request is None:
            rows = [
                (each["id"], f"{each['asked_blobs']}", each["by"], each["reason"], _end(each))
                for each in document["requests"]
            ]
            output.table(("REQUEST", "BLOBS", "BY", "WHY", "DONE"), rows)
            return
        output.facts(
            {
                "request": document["id"],
                "by": f"{document['by']}: {document['reason']}",
                "blobs": f"{document['asked_blobs']}, {document['contents']} contents",
                "done": _end(document),
            }
        )
        models = [
            (
                f"{each['name']}:{each['version']}",
                "yes" if each["in_service"] else "no",
                each["dataset_version"],
                f"{each['blobs']}",
            )
            for each in document["models"]
        ]
        output.table(("MODEL", "IN SERVICE", "DATASET", "BLOBS"), models)
        versions = [
            (each["pipeline"], each["version"], f"{each['blobs']}", f"{each['copies_deleted']}")
            for each in document["versions"]
        ]
        output.table(("PIPELINE", "DATASET", "BLOBS", "COPIES DELETED"), versions)

    path = "/api/forgotten" if request is None else f"/api/forgotten/{request}"
    session.output.show(session.api.get(path), people)


def _end(document: Any) -> str:
    return exact(document["done_at"]) if document["done_at"] else "not yet"
