"""Checks history files against an app, and reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, cast

from replay_guard import exported_form, worker_form
from replay_guard.app import App
from replay_guard.history import VERSION, CannotCheck, Document, History, NotTold
from replay_guard.matching import Difference
from replay_guard.outcome import Replayed
from replay_guard.replay import replay


class ExitCode(IntEnum):
    """The exit status of the command line."""

    FITS = 0
    DIFFERS = 1
    FAILED = 2
    CANNOT_CHECK = 3


class Verdict(StrEnum):
    """The outcome of one history."""

    FITS = "fits"
    DIFFERS = "differs"
    CANNOT_CHECK = "cannot check"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One history's verdict.

    Attributes:
        file: the history's path.
        instance: None if the file could not be read.
        orchestrator: None if the file could not be read.
        steps: how many recorded steps were compared.
        differences: why it differs.
        problem: why it cannot be checked, or what failed.
        not_compared: what could not be compared, and how often.
    """

    file: str
    verdict: Verdict
    instance: str | None = None
    orchestrator: str | None = None
    steps: int = 0
    differences: Sequence[Difference] = ()
    problem: str | None = None
    not_compared: Counter[str] = field(default_factory=Counter[str])


def check(
    app: App,
    files: Iterable[Path],
    progress: Callable[[str], None],
    *,
    version: str | None = None,
) -> Iterator[Checked]:
    """Replay each file's history against the app.

    Args:
        app: the code at hand.
        files: exported histories or orchestrator-in documents.
        progress: called with each file's name before its replay.
        version: the version of instances whose history does not record one.
    """
    for file in files:
        progress(file.name)
        history: History | None = None
        try:
            history = read(file)
            if history.version is None:
                told = {VERSION} if version else set[str]()
                not_recorded = history.not_recorded - told
                history = replace(history, version=version, not_recorded=not_recorded)
            yield check_one(app, history, str(file))
        except CannotCheck as problem:
            yield Checked(
                file=str(file),
                verdict=Verdict.CANNOT_CHECK if isinstance(problem, NotTold) else Verdict.FAILED,
                instance=history and history.instance_id,
                orchestrator=history and history.orchestrator,
                problem=str(problem),
            )


def check_one(app: App, history: History, file: str) -> Checked:
    """Replay one history against an app.

    Raises:
        CannotCheck: it cannot be replayed, or does not tell enough.
    """
    handle = app.orchestrators.get(history.orchestrator.casefold())
    if handle is None:
        gone = Difference(
            step=None,
            what="orchestrator",
            expected=f"'{history.orchestrator}'",
            found=f"only {', '.join(sorted(app.orchestrators)) or 'none'}",
        )
        result = Replayed(differences=[gone])
    else:
        result = replay(history, handle, knows=app.knows, versioning=app.versioning, ask=app.ask)
    return Checked(
        file=file,
        verdict=Verdict.DIFFERS if result.differences else Verdict.FITS,
        instance=history.instance_id,
        orchestrator=history.orchestrator,
        steps=result.steps,
        differences=result.differences,
        not_compared=result.not_compared,
    )


def read(file: Path) -> History:
    """The history in a file.

    Raises:
        CannotCheck: the file cannot be read, or has no history.
    """
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CannotCheck(f"the file cannot be read as JSON: {error}") from error
    if not isinstance(document, dict):
        raise CannotCheck("the file is not a JSON object")
    return read_document(cast("Document", document))


def read_document(document: Document) -> History:
    """The history in a document of either form.

    Raises:
        CannotCheck: it has no history.
    """
    form = exported_form if exported_form.is_exported(document) else worker_form
    return form.read(document)


def exit_code(results: Sequence[Checked]) -> ExitCode:
    """The exit status: that of the worst verdict; no history is a failure."""
    verdicts = {each.verdict for each in results} or {Verdict.FAILED}
    worst_first = (Verdict.DIFFERS, Verdict.FAILED, Verdict.CANNOT_CHECK, Verdict.FITS)
    return ExitCode[next(each for each in worst_first if each in verdicts).name]


def to_text(results: Sequence[Checked]) -> Iterator[str]:
    """The report, line by line."""
    for each in results:
        name = f"{each.orchestrator} {each.instance}" if each.instance else each.file
        yield f"{each.verdict}: {name} ({each.steps} steps)"
        if each.problem:
            yield f"  {each.problem}"
        for difference in each.differences:
            yield f"  {difference}"
    totals = Counter(each.verdict for each in results)
    counts = ", ".join(f"{totals[verdict]} {verdict}" for verdict in Verdict)
    yield f"{len(results)} histories: {counts}"
    not_compared = sum((each.not_compared for each in results), Counter[str]())
    for what, count in sorted(not_compared.items()):
        yield f"not compared: {count} {what}"


def to_document(results: Sequence[Checked]) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "exitCode": int(exit_code(results)),
        "histories": [
            {
                "file": each.file,
                "instanceId": each.instance,
                "orchestrator": each.orchestrator,
                "verdict": str(each.verdict),
                "stepsCompared": each.steps,
                "differences": [vars(difference) for difference in each.differences],
                "problem": each.problem,
                "notCompared": dict(sorted(each.not_compared.items())),
            }
            for each in results
        ],
    }
