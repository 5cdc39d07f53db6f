"""Options of several commands."""

from __future__ import annotations

from typing import Annotated

import typer

Reason = Annotated[str, typer.Option(help="Why; it is kept.")]
OptionalReason = Annotated[str | None, typer.Option(help="Why; it is kept.")]
By = Annotated[str | None, typer.Option(help="Who you are; the user's name by default.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
After = Annotated[str | None, typer.Option(help="Of `next`: the page that follows.")]
