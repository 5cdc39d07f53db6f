"""landfall what-if."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from landfall_cli.output import exact
from landfall_cli.session import Exit, Session


def what_if(
    session: Session,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A changed pipeline.yml.")
    ],
    *,
    pipeline: Annotated[
        str | None, typer.Option(help="The pipeline's name; by default that of the file's folder.")
    ] = None,
    days: Annotated[float, typer.Option(min=0.01, help="How far back to begin.")] = 30.0,
) -> None:
    """Decide on the recorded batches by a changed file; exit code 1 if a decision differs."""
    name = pipeline or file.resolve().parent.name
    body = {"file": file.read_text("utf-8"), "days": days}
    document = session.api.post(f"/api/pipelines/{name}/what-if", body)
    session.output.show(document, lambda shown: _show(session, shown))
    if any(_differs(each) for each in document["batches"]):
        raise typer.Exit(Exit.FAILED)


def _differs(batch: Any) -> bool:
    keys = ("", "_model")
    return any(batch[f"recorded{key}"] != batch[f"what_if{key}"] for key in keys)


def _show(session: Session, document: Any) -> None:
    output = session.output
    rows = [
        (
            "*" if _differs(each) else "",
            exact(each["frozen_at"]),
            each["dataset_version"],
            _both(each, "recorded"),
            _both(each, "what_if"),
            each["why"],
        )
        for each in document["batches"]
    ]
    output.table(("", "FROZEN", "DATASET", "RECORDED", "WHAT IF", "WHY"), rows)
    output.line("")
    totals = [
        (
            title,
            *(f"{document[key][count]}" for count in ("trained", "held", "promoted", "unknown")),
            f"{document[key]['node_hours']:,.2f}",
        )
        for title, key in (("recorded", "recorded"), ("what if", "what_if"))
    ]
    output.table(("", "TRAINED", "HELD", "PROMOTED", "UNKNOWN", "NODE-HOURS"), totals)
    if document["not_replayed"]:
        output.line(f"Their effect is unknown: {', '.join(document['not_replayed'])}.")


def _both(batch: Any, key: str) -> str:
    model = batch[f"{key}_model"]
    return batch[key] if model == "none" else f"{batch[key]}, {model}"
