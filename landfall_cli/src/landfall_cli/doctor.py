"""landfall doctor: check the connection, the app's services, and every pipeline."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import BaseModel
from rich.text import Text

from landfall_cli.api import Api, Refused
from landfall_cli.session import Exit, Session

TABLE = Path(__file__).parents[3] / "infra" / "roles.json"
OPERATIONS = frozenset(
    {
        "list_runs",
        "get_run",
        "cancel_run",
        "redrive",
        "list_pipelines",
        "get_pipeline",
        "pause_pipeline",
        "resume_pipeline",
        "list_models",
        "get_model",
        "promote_model",
        "roll_back_model",
        "explain",
        "list_dead_letters",
        "get_dead_letter",
        "redrive_dead_letters",
        "discard_dead_letters",
        "list_alarms",
        "list_actions",
    }
)


MARKS = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}


class Check(BaseModel):
    """The result of one check, with a remedy if it is bad. A warning is no failure."""

    name: str
    verdict: Literal["good", "warning", "bad"]
    finding: str
    remedy: str | None = None


def doctor(session: Session) -> None:
    """Check the API, its services and every pipeline; exit code 1 if something is bad."""
    print_checks(session, list(examine(session.api)))


def print_checks(session: Session, checks: Sequence[Check]) -> None:
    """Print the results of checks, with remedies.

    Raises:
        typer.Exit: a check is bad.
    """
    output = session.output
    document = {"checks": [check.model_dump() for check in checks]}

    def people(_: Any) -> None:
        for check in checks:
            output.line(Text.assemble(MARKS[check.verdict], f" {check.name}: {check.finding}"))
            if check.remedy:
                output.line(f"  {check.remedy}")

    output.show(document, people)
    if any(check.verdict == "bad" for check in checks):
        raise typer.Exit(Exit.FAILED)


def examine(api: Api) -> Iterator[Check]:
    """Do every check; a check whose request is refused is bad.

    Raises:
        Unreachable: the API does not answer, or does not accept the key.
    """
    described = api.get("/api/openapi.json")
    known = {
        operation["operationId"]
        for operations in described["paths"].values()
        for operation in operations.values()
    }
    missing = sorted(OPERATIONS - known)
    url = api.connection.url
    yield _check(
        "API",
        f"{url} lacks {', '.join(missing)}" if missing else None,
        f"{url} answers and accepts the key (from {api.connection.source})",
        "Deploy the release that this command line belongs to.",
    )
    yield from _ask("storage", lambda: api.get("/api/runs", limit=1), _storage, STORAGE_REMEDY)
    yield from _ask("Service Bus", lambda: api.get("/api/dead-letters"), _letters, BUS_REMEDY)
    yield from _ask("credentials", lambda: api.get("/api/alarms"), _credentials, STORAGE_REMEDY)
    yield from _ask("nodes", lambda: api.get("/api/queues"), _nodes, STORAGE_REMEDY)
    listed: list[str] = []

    def pipelines() -> Any:
        document = api.get("/api/pipelines")
        listed.extend(each["name"] for each in document["pipelines"])
        return document

    yield from _ask("pipelines", pipelines, _pipelines, STORAGE_REMEDY)
    if listed:  # reading a pipeline reads its champion from Azure ML
        ask = functools.partial(_read_pipeline, api, f"/api/pipelines/{listed[0]}")
        yield from _ask("Azure ML", ask, _azure_ml, AZURE_ML_REMEDY)


def roles_of_the_app(*scopes: str) -> str:
    """The app's roles on these scopes of the table, as in "AzureML Data Scientist on workspace".

    A command line that is installed from its wheel only refers to the table.
    """
    try:
        rows = json.loads(TABLE.read_text("utf-8"))["assignments"]
    except FileNotFoundError:
        return f"its roles on {', '.join(scopes)} in infra/roles.json"
    roles = [
        f"{row['role']} on {row['scope']}"
        for row in rows
        if row["principal"] == "app" and row["scope"] in scopes
    ]
    return ", ".join(roles)


STORAGE_REMEDY = (
    "Check app setting DataStorage, and that the app's identity has "
    f"{roles_of_the_app('landing', 'records')}."
)
AZURE_ML_REMEDY = (
    "Check app settings AZUREML_SUBSCRIPTION_ID, AZUREML_RESOURCE_GROUP and "
    f"AZUREML_WORKSPACE_NAME, and that the app's identity has {roles_of_the_app('workspace')}."
)
BUS_REMEDY = (
    "Check app setting ServiceBus, and that the app's identity has "
    f"{roles_of_the_app('serviceBus')}."
)


def _ask(
    name: str, ask: Callable[[], Any], judge: Callable[[Any], Iterator[Check]], remedy: str
) -> Iterator[Check]:
    try:
        document = ask()
    except Refused as error:
        yield Check(name=name, verdict="bad", finding=str(error), remedy=remedy)
        return
    yield from judge(document)


def _check(name: str, problem: str | None, otherwise: str, remedy: str) -> Check:
    if problem is None:
        return Check(name=name, verdict="good", finding=otherwise)
    return Check(name=name, verdict="bad", finding=problem, remedy=remedy)


def _storage(_: Any) -> Iterator[Check]:
    yield Check(name="storage", verdict="good", finding="the index of runs can be read")


def _letters(document: Any) -> Iterator[Check]:
    count = len(document["dead_letters"])
    more = "or more " if document["next"] else ""
    problem = f"{count} {more}dead letters" if count else None
    yield _check("Service Bus", problem, "no dead letter", "See `landfall dead-letters list`.")


def _credentials(document: Any) -> Iterator[Check]:
    expiring = [each for each in document["alarms"] if each["kind"] == "credential-expires"]
    for each in expiring:
        yield Check(
            name=f"credential {each['about']}",
            verdict="bad",
            finding=each["message"],
            remedy="Renew it: the sentence says where. The alarm is over at the next round.",
        )
    if not expiring:
        found = "no signature in the app settings, and no secret of Key Vault, expires soon"
        yield Check(name="credentials", verdict="good", finding=found)


def _nodes(document: Any) -> Iterator[Check]:
    waiting = [run for queue in document["queues"] for run in queue["waiting"]]
    finding = f"{len(waiting)} runs wait in a queue" if waiting else "no run waits in a queue"
    yield Check(name="nodes", verdict="good", finding=finding)


def _read_pipeline(api: Api, path: str) -> Any:
    document = api.get(path)
    # A fresh instance of the app first loads Azure ML's SDK, which takes longer than a request may.
    return api.get(path) if document["champion_problem"] else document


def _azure_ml(document: Any) -> Iterator[Check]:
    problem = document["champion_problem"]
    yield _check("Azure ML", problem, "the model registry can be read", AZURE_ML_REMEDY)


def _pipelines(document: Any) -> Iterator[Check]:
    missing = {text: None for each in document["pipelines"] for text in each["missing_settings"]}
    yield _check(
        "settings",
        "; ".join(missing) or None,
        "every app setting that a pipeline needs is there",
        "docs/app-settings.md says what each is for.",
    )
    for each in document["pipelines"]:
        name, sentence = each["name"], each["sentence"]
        problem = sentence if each["state"] == "needs-a-human" else None
        remedy = f"See `landfall pipelines get {name}`."
        yield _check(f"pipeline {name}", problem, sentence, remedy)
    yield from judge_compute(
        {
            each["name"]: (each["compute_warnings"], each["compute_not_known"])
            for each in document["pipelines"]
        }
    )


def judge_compute(noted: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> Iterator[Check]:
    """Warnings about compute options, and what could not be judged.

    Args:
        noted: pipeline → its warnings, and what is not known.
    """
    warned: dict[str, list[str]] = {}
    for pipeline, (warnings, _) in noted.items():
        for sentence in warnings:
            warned.setdefault(sentence, []).append(pipeline)
    for sentence, names in warned.items():
        yield Check(name=f"compute of {', '.join(names)}", verdict="warning", finding=sentence)
    missing = {text: None for _, not_known in noted.values() for text in not_known}
    finding = f"{len(warned) or 'no'} warnings about sizes and regions"
    if missing:
        finding += f"; not known: {', '.join(missing)}"
    yield Check(name="compute", verdict="good", finding=finding)
