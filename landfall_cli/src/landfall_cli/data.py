"""landfall data diff."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from landfall_cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Data: what differs between two dataset versions.")


@app.callback()
def options() -> None:
    """Keep the name of the only command."""


@command(app)
def diff(
    session: Session,
    pipeline: Annotated[str, typer.Argument(help="The pipeline's name.")],
    version: Annotated[str, typer.Argument(help="The later dataset version.")],
    base: Annotated[
        str | None,
        typer.Argument(help="The earlier one; by default the last trained one when it landed."),
    ] = None,
) -> None:
    """Show which files were added, removed, changed or moved between two dataset versions."""

    def people(document: Any) -> None:
        output = session.output
        kinds = ("added", "removed", "changed", "moved", "duplicates", "duplicates_of_base")
        rows = [
            (
                kind.replace("_", " "),
                f"{document[kind]['blobs']:,}",
                f"{document[kind]['bytes']:,}",
                "  ".join(document["examples"].get(kind, ())),
            )
            for kind in ("before", "after", *kinds)
        ]
        output.table(("", "FILES", "BYTES", "SUCH AS"), rows)
        for name in ("labels", "partitions", "folders"):
            groups = document[name]["groups"]
            if len(groups) > 1:
                columns = ("before", "after", "added", "removed", "changed")
                output.table(
                    (name.upper(), *map(str.upper, columns)),
                    [(each["name"], *(f"{each[key]:,}" for key in columns)) for each in groups],
                )

    found = session.api.get(f"/api/pipelines/{pipeline}/data/{version}", base=base)
    session.output.show(found, people)
