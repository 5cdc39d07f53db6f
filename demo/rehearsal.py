"""python -m demo.rehearsal: the checklist of docs/deploy.md on localazure; status 0 if all holds.

Each line of its table is a command, what it shows, and what to send back if it does not. They run
in order, as on the first live evening; those of `az`, `azd` and `bicep` need Azure and are named.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from demo import laptop
from demo.console import ROOT, run, shows

PAGE = ROOT / "docs" / "deploy.md"
ROW = re.compile(r"^\| (\d+) \| `([^`]+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
NEEDS_AZURE = re.compile(r"\b(az|azd|bicep) ")
State = Literal["ok", "differs", "needs Azure"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the checklist."""

    number: int
    command: str
    shown: tuple[str, ...]
    """What its output contains; `…` is any text."""
    send: str
    """What helps if it does not."""

    @property
    def needs_azure(self) -> bool:
        """Whether its command asks Azure itself."""
        return NEEDS_AZURE.search(self.command) is not None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a line."""

    line: Line
    state: State
    output: str = ""


def checklist() -> list[Line]:
    """The lines of the page, in order."""
    return [
        Line(
            number=int(number),
            command=command.replace(r"\|", "|"),
            shown=tuple(re.findall(r"`([^`]+)`", shown)),
            send=send,
        )
        for number, command, shown, send in ROW.findall(PAGE.read_text("utf-8"))
    ]


def variables(endpoints: Mapping[str, Any]) -> dict[str, str]:
    """The environment of somebody who deployed: what `azd env get-values` and `az` tell on Azure.

    Args:
        endpoints: the content of `endpoints.json`.
    """
    functions, settings = endpoints["functions"], endpoints["app_settings"]
    of_identity = ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "REQUESTS_CA_BUNDLE")
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANDFALL_URL": functions["base_url"],
        "LANDFALL_KEY": functions["function_key"],
        "FUNCTION_KEY": functions["function_key"],
        "LANDFALL_FUNCTION_KEY": functions["function_key"],
        "LANDFALL_DATA_URL": settings["DataStorage__blobServiceUri"],
        "LANDFALL_SMOKE_TIMEOUT_SECONDS": "600",
        "AZURE_CLIENT_ID": endpoints["identities"].get("deployer", ""),
        **{name: settings[name] for name in of_identity},
    }


async def rehearse(endpoints: Mapping[str, Any]) -> AsyncGenerator[Outcome]:
    """Run the checklist's lines in order against a runtime."""
    environment = variables(endpoints)
    for line in checklist():
        if line.needs_azure:
            yield Outcome(line=line, state="needs Azure")
            continue
        done = await run(line.command, environment)
        holds = done.status == 0 and all(shows(done.output, each) for each in line.shown)
        yield Outcome(line=line, state="ok" if holds else "differs", output=done.output)


async def _main(state: Path) -> int:
    shutil.rmtree(state, ignore_errors=True)
    all_hold = True
    async with laptop.running(state, {}) as endpoints:
        async for outcome in rehearse(endpoints):
            line = outcome.line
            mark = {"ok": "✓", "differs": "✗", "needs Azure": "-"}[outcome.state]
            _say(f"{mark} {line.number:2} {outcome.state:11} {line.command}")
            if outcome.state == "differs":
                all_hold = False
                _say(f"     expected {' and '.join(line.shown)}; send: {line.send}")
                _say("     " + outcome.output.replace("\n", "\n     "))
    return 0 if all_hold else 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m demo.rehearsal", description=__doc__)
    folder = laptop.APP / "build" / "rehearsal"
    parser.add_argument("--state", type=Path, default=folder, help="is emptied first")
    sys.exit(asyncio.run(_main(parser.parse_args().state)))
