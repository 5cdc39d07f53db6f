"""landfall check: find errors before a deployment, without any service."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from landfall_cli.doctor import Check, judge_compute, print_checks
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
_NOTE = re.compile(r"^(warning|not-known) ([^:]+): (.+)$", re.MULTILINE)
CANNOT_CHECK = 3
"""Exit status of the replay guard where a history does not tell enough."""
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
    regions: Annotated[
        str,
        typer.Option(
            help="Where the app runs: a region, or app=REGION data=REGION workspace=REGION.",
        ),
    ] = "",
) -> None:
    """Check pipeline files, and whether the code fits recorded histories; exit code 1 if not."""
    print_checks(session, list(examine_app(app, histories or app / RECORDED, regions)))


def examine_app(app: Path, histories: Path, regions: str) -> Iterator[Check]:
    """Do all checks, each in a process in the app's folder, without importing the app.

    Args:
        app: the app's folder.
        histories: a folder of JSON files.
        regions: of app, data and workspace; empty if they are not known.
    """
    arguments = ["handlers.platform.configuration", *([regions] if regions else [])]
    ended = _run(app, arguments)
    yield _judge("pipelines", ended, PIPELINES_REMEDY)
    if ended.returncode == 0:
        yield from judge_compute(_noted(ended.stdout))
    files = sorted(str(file.resolve()) for file in histories.glob("*.json"))
    if files:
        arguments = ["replay_guard", "check", ".", *files]
        yield _judge("histories", _run(app, arguments), HISTORIES_REMEDY)
    else:
        yield Check(
            name="histories",
            verdict="bad",
            finding=f"there is none in {histories}",
            remedy="Export those of the running app: replay-guard export --help",
        )


def _noted(said: str) -> dict[str, tuple[list[str], list[str]]]:
    """The notes that `handlers.platform.configuration` prints, by pipeline."""
    names = said.strip().splitlines()[-1].rpartition(": ")[2]
    noted = {name: (list[str](), list[str]()) for name in names.split(", ")}
    for kind, name, sentence in _NOTE.findall(said):
        noted[name][kind == "not-known"].append(sentence)
    return noted


def _run(app: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=app, capture_output=True, text=True, check=False
    )


def _judge(name: str, ended: subprocess.CompletedProcess[str], remedy: str) -> Check:
    said = (ended.stdout + ended.stderr).strip()
    if ended.returncode == 0:  # the last line has the counts
        return Check(name=name, verdict="good", finding=said.splitlines()[-1])
    if ended.returncode == CANNOT_CHECK:
        return Check(name=name, verdict="warning", finding=said)
    lacks = "No module named" in said
    return Check(
        name=name, verdict="bad", finding=said, remedy=ENVIRONMENT_REMEDY if lacks else remedy
    )
