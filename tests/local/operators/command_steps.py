"""Steps on the command line: the commands of a task, read from docs/operators.md."""

from __future__ import annotations

import json
import re
import shlex
from string import Template
from typing import Any

from handlers.platform.settings import APP_FOLDER
from tests.local.operators.conftest import Laptop

SCRIPT = (APP_FOLDER / "docs" / "operators.md").read_text("utf-8")
COMMANDS = dict(
    re.findall(r"^### (\d+)\. .*?\n```console\n(.*?)```", SCRIPT, re.DOTALL | re.MULTILINE)
)
# Commands that ask for confirmation.
ACTIONS = {
    "train",
    "forget",
    "pause",
    "resume",
    "release",
    "cancel",
    "retry",
    "redrive",
    "discard",
    "promote",
    "rollback",
}


def commands(task: int) -> list[str]:
    """The commands of a task in the script."""
    return [line.removeprefix("$ landfall ") for line in COMMANDS[str(task)].splitlines()]


async def run(laptop: Laptop, line: str, exits: int = 0, /, **names: str) -> Any:
    """Run one command; return the document that it prints."""
    arguments = shlex.split(Template(line).substitute(names))
    if ACTIONS & set(arguments[:2]):
        arguments.append("--yes")
    done = await laptop.command("--json", *arguments)
    assert done.exit_code == exits, (line, done.output)
    return json.loads(done.stdout or "null")


async def do(laptop: Laptop, task: int, **names: str) -> list[Any]:
    """Run the commands of a task in order; return the documents that they print."""
    return [await run(laptop, line, 0, **names) for line in commands(task)]
