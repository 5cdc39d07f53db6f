"""landfall check: find errors before a deployment, without any service."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from landfall_cli.doctor import Check, print_checks
from landfall_cli.session import Session

PIPELINES_REMEDY = "Fix that file: the app does not start with it."
HISTORIES_REMEDY = (
    "Give the orchestrator its old steps again, keep its old code for the old version, or deploy "
    "under a new defaultVersion in host.json: the failed instances are started again "
    "(CONTRIBUTING.md, Change an orchestrator)."
)
ENVIRONMENT_REMEDY = (
    "Run this in an environment that has the app's requirements and the replay guard: `make setup` "
    "makes one in .venv. And give the app's folder with --app."
)
RECORDED = Path("tests") / "replay" / "histories"


def check(
    session: Session,
    app: Annotated[
        Path, typer.Option(help="The app's folder.", file_okay=False, exists=True)
    ] = Path(),
    *,
    histories: Annotated[
        Path | None,
        typer.Option(help="A folder that `replay-guard export` wrote; recorded ones."),
    ] = None,
) -> None:
    """Check pipeline files, and whether the code fits recorded histories; exit code 1 if not."""
    print_checks(session, list(examine_app(app, histories or app / RECORDED)))


def examine_app(app: Path, histories: Path) -> Iterator[Check]:
    """Do both checks, each in a process in the app's folder, without importing the app.

    Args:
        app: the app's folder.
        histories: a folder of JSON files.
    """
    yield _run(app, "pipelines", ["handlers.platform.configuration"], PIPELINES_REMEDY)
    files = sorted(str(file.resolve()) for file in histories.glob("*.json"))
    if files:
        arguments = ["replay_guard", "check", ".", *files]
        yield _run(app, "histories", arguments, HISTORIES_REMEDY)
    else:
        yield Check(
            name="histories",
            verdict="bad",
            finding=f"there is none in {histories}",
            remedy="Export those of the running app: replay-guard export --help",
        )


def _run(app: Path, name: str, arguments: Sequence[str], remedy: str) -> Check:
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=app, capture_output=True, text=True, check=False
    )
    is_good = ended.returncode == 0
    said = (ended.stdout + ended.stderr).strip()
    # On success, the last line has the counts.
    finding = said.splitlines()[-1] if is_good and said else said
    return Check(
        name=name,
        verdict="good" if is_good else "bad",
        finding=finding,
        remedy=None if is_good else ENVIRONMENT_REMEDY if "No module named" in said else remedy,
    )
