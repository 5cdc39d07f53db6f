"""Orchestrations are deterministic: what could make a replay differ is banned from them.

Replay (tests/replay) proves the steps that were recorded; this proves the modules, line by line.
https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-code-constraints
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from handlers.platform.settings import APP_FOLDER

MODULES = sorted((APP_FOLDER / "orchestrations").rglob("*.py"))

CLOCK = "reads a clock: take context.current_utc_datetime"
CHANCE = "draws by chance: derive the name (orchestrations/names.py)"
OUTSIDE = "reaches the outside world: that is an activity's"
LOGS = "logs again on each replay: take orchestrations.platform.activities"
CONCURRENCY = "runs beside the replay: yield a durable task"
DYNAMIC = "hides what is imported from this test"

BANNED_MODULES = {
    "time": CLOCK,
    **dict.fromkeys(("random", "secrets", "uuid"), CHANCE),
    **dict.fromkeys(("os", "pathlib", "io", "shutil", "tempfile", "platform"), OUTSIDE),
    **dict.fromkeys(("socket", "ssl", "http", "urllib", "aiohttp", "requests", "httpx"), OUTSIDE),
    **dict.fromkeys(("sqlite3", "subprocess", "azure", "msrest", "mlflow", "torch"), OUTSIDE),
    "logging": LOGS,
    **dict.fromkeys(("asyncio", "threading", "multiprocessing", "concurrent"), CONCURRENCY),
    "importlib": DYNAMIC,
}
# Of Azure, what an orchestrator is written with, and nothing else: no client either.
ALLOWED_NAMES = {
    "azure.durable_functions.DurableOrchestrationContext",
    "azure.durable_functions.RetryOptions",
}
BANNED_NAMES = {
    "datetime.datetime.now": CLOCK,
    "datetime.datetime.utcnow": CLOCK,
    "datetime.datetime.today": CLOCK,
    "datetime.date.today": CLOCK,
    # Without a time zone both take the machine's.
    "datetime.datetime.fromtimestamp": CLOCK,
    "datetime.date.fromtimestamp": CLOCK,
    "open": OUTSIDE,
    "input": OUTSIDE,
    "print": LOGS,
    "hash": "differs from process to process: take hashlib",
    "id": "differs from process to process: take hashlib",
    "__import__": DYNAMIC,
    "eval": DYNAMIC,
    "exec": DYNAMIC,
}


def violations(source: str) -> list[str]:
    """The banned names that a module uses, as `line: name: reason`; references count as calls."""
    tree = ast.parse(source)
    imported: dict[str, str] = {}
    """Local name → what it stands for."""
    found: list[str] = []
    for node in ast.walk(tree):
        for local, name in _imports(node):
            imported[local] = name
            reason = BANNED_MODULES.get(name.partition(".")[0])
            if reason is not None and name not in ALLOWED_NAMES:
                found.append(f"{_line(node)}: {name}: {reason}")
    for node in ast.walk(tree):
        name = _dotted(node, imported)
        if name in BANNED_NAMES:
            found.append(f"{_line(node)}: {name}: {BANNED_NAMES[name]}")
    return found


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            for each in names:
                if each.asname:
                    yield each.asname, each.name
                else:
                    yield each.name.partition(".")[0], each.name
        case ast.ImportFrom(module=module, names=names, level=0):
            for each in names:
                yield each.asname or each.name, f"{module}.{each.name}"
        case _:
            pass


def _dotted(node: ast.AST, imported: dict[str, str]) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return imported.get(name, name)
        case ast.Attribute(value=value, attr=attribute):
            owner = _dotted(value, imported)
            return None if owner is None else f"{owner}.{attribute}"
        case _:
            return None


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_orchestrations_use_nothing_that_is_banned(module: Path) -> None:
    found = violations(module.read_text("utf-8"))
    # The one logger that is silent on replay.
    allowed = ["logging"] if module.stem == "activities" else []
    assert [each.split(": ")[1] for each in found] == allowed, found


def test_the_orchestrators_are_among_the_modules() -> None:
    assert {"landing", "retraining"} <= {module.stem for module in MODULES}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import os.path as places", "os.path"),
        ("from os import environ", "os.environ"),
        ("from random import random as draw", "random.random"),
        ("def late():\n    import logging", "logging"),
        ("import azure.functions as func", "azure.functions"),
        (
            "from azure.durable_functions import DurableOrchestrationClient",
            "azure.durable_functions.DurableOrchestrationClient",
        ),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("from datetime import datetime as d, UTC\nd.now(UTC)", "datetime.datetime.now"),
        ("import datetime\ndatetime.datetime.utcnow()", "datetime.datetime.utcnow"),
        ("import datetime as dt\ndt.date.today()", "datetime.date.today"),
        ("from datetime import datetime\nread = datetime.now", "datetime.datetime.now"),
        ("from datetime import date\nfield(default_factory=date.today)", "datetime.date.today"),
        ("open('a')", "open"),
        ("__import__('os')", "__import__"),
    ],
)
def test_what_is_banned_is_found(source: str, name: str) -> None:
    (found,) = violations(source)
    assert found.split(": ")[1] == name


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import UTC, datetime\ndatetime.fromisoformat('2026-11-21')",
        "import hashlib\nhashlib.sha256(b'')",
        "from azure.durable_functions import DurableOrchestrationContext, RetryOptions",
        "def step(context):\n    return context.current_utc_datetime",
        "class A:\n    id: str\n\ndef f(a):\n    return a.id",
    ],
)
def test_what_is_allowed_is_not(source: str) -> None:
    assert violations(source) == []
