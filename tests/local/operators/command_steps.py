"""Steps on the command line: the commands of a task, read from docs/operators.md."""

from __future__ import annotations

import json
import re
import shlex
from string import Template
from typing import Any

from demo.console import blocks, confirmed
from handlers.platform.settings import APP_FOLDER
from tests.local.operators.conftest import Laptop

SCRIPT = (APP_FOLDER / "docs" / "operators.md").read_text("utf-8")
COMMANDS = {
    block.section.split(".")[0]: [each.text.removeprefix("landfall ") for each in block.commands]
    for block in blocks([APP_FOLDER / "docs" / "operators.md"])
    if re.match(r"\d+\. ", block.section)
}


def commands(task: int) -> list[str]:
    """The commands of a task in the script."""
    return COMMANDS[str(task)]


async def run(laptop: Laptop, line: str, exits: int = 0, /, **names: str) -> Any:
    """Run one command; return the document that it prints."""
    typed = confirmed(Template(f"landfall {line}").substitute(names))
    done = await laptop.command("--json", *shlex.split(typed)[1:])
    assert done.exit_code == exits, (line, done.output)
    return json.loads(done.stdout or "null")


async def do(laptop: Laptop, task: int, **names: str) -> list[Any]:
    """Run the commands of a task in order; return the documents that they print."""
    return [await run(laptop, line, 0, **names) for line in commands(task)]
