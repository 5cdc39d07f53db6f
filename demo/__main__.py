"""python -m demo [--json] [--state DIR]: run the six stories; exit status 0 when all went well."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from demo import laptop
from demo.audience import audience
from demo.cloud import PIPELINE, models
from demo.digits import digit_files
from demo.report import (
    MARKS,
    Report,
    StoryResult,
    StoryState,
    failure_line,
    show,
    summarise_error,
)
from demo.stories import LIVE, STORIES, Facts, Stage
from localazure.faults.current_plan import remove_plan, set_plan
from localazure.faults.injector import FILE as FAULTS_FILE
from localazure.faults.plan import moderate

# After a lost connection, a message is delivered again when its lock of a minute expires.
PATIENCE_WITH_FAULTS = 4.0
DEFAULT_STATE = laptop.APP / "build" / "demo"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="is emptied first")
    parser.add_argument("--chaos", type=int, metavar="SEED", help="with a moderate plan of faults")
    arguments = parser.parse_args()
    # Progress goes to stderr, so that stdout holds the result and nothing else.
    console = Console(stderr=arguments.json)
    try:
        report = asyncio.run(_run(arguments.state, console, arguments.chaos))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except (laptop.LaptopError, TimeoutError) as error:
        console.print(str(error), markup=False)
        return 1
    if arguments.json:
        json.dump(report.to_dict(), sys.stdout, indent=2)
        print()
    else:
        show(report, console)
    return 0 if report.ok else 1


async def _run(state: Path, console: Console, chaos: int | None) -> Report:
    began = time.monotonic()
    task = asyncio.current_task()
    assert task is not None
    # On a signal, the demo still stops what it started.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    shutil.rmtree(state, ignore_errors=True)
    async with audience() as listeners:
        digits = digit_files(state / "digits")
        console.print("starting storage, Event Grid, Service Bus, Azure ML and the function app …")
        async with (
            laptop.running(state, listeners.settings) as endpoints,
            listeners.watching(endpoints) as cloud,
        ):
            console.print(f"all ready after {time.monotonic() - began:.1f} s")
            # The SDKs read their settings from the environment, as in the app.
            os.environ.update(endpoints["app_settings"])
            if chaos is not None:
                set_plan(state, moderate(chaos))
                console.print(f"faults on purpose, drawn from seed {chaos}: {state / FAULTS_FILE}")
            with console.status("") as status:
                patience = 1.0 if chaos is None else PATIENCE_WITH_FAULTS
                stage = Stage(cloud, listeners.mailbox, status.update, digits, patience)
                results = await _tell_all(stage, console, state)
                remove_plan(state)
                status.update("reading back what was registered")
                registered = [
                    model
                    for name in (PIPELINE, LIVE)
                    for model in await asyncio.to_thread(models, cloud, name)
                ]
            runs = await cloud.runs()
    return Report(
        stories=results,
        runs=runs,
        models=registered,
        notifications=listeners.mailbox.notifications,
        total_seconds=time.monotonic() - began,
    )


async def _tell_all(stage: Stage, console: Console, state: Path) -> list[StoryResult]:
    """Play the stories in order, with the parallel ones at the same time; print each in turn.

    The stories of one zone build on each other: after one that failed, the others are not played.
    A line of JSON follows each one that failed.
    """

    def say_nothing(_: str) -> None:
        """Print nothing: another story uses the terminal."""

    aside = replace(stage, say=say_nothing)
    results: list[StoryResult] = []
    async with asyncio.TaskGroup() as group:
        beside = {
            name: group.create_task(_play(name, aside))
            for name, story in STORIES.items()
            if story.is_beside
        }
        for name, story in STORIES.items():
            depends = not story.is_beside and not all(each.ok for each in results)
            if depends:
                result = StoryResult(name=name, state="not played", seconds=0.0, facts={})
            else:
                result = await (beside[name] if name in beside else _play(name, stage))
            outcome = story.outcome if result.ok else result.facts.get("error", "")
            said = escape(f"{name:{max(map(len, STORIES))}}  {outcome}")
            console.print(f"{MARKS[result.state]} {said}", soft_wrap=True)
            if result.state == "failed":
                runs: dict[str, str] = {}
                with contextlib.suppress(Exception):  # what failed may be the app
                    runs = {run["id"]: run["state"] for run in await stage.cloud.runs()}
                line = failure_line(result, runs, state / "logs")
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            results.append(result)
    return results


async def _play(name: str, stage: Stage) -> StoryResult:
    began = time.monotonic()
    facts: Facts
    stage.late = False
    state: StoryState
    try:
        facts = await STORIES[name].play(stage)
        state = "late" if stage.late else "ok"
    except Exception as error:  # noqa: BLE001 - a failed story is a result
        facts, state = {"error": summarise_error(error)}, "failed"
    return StoryResult(name=name, state=state, seconds=time.monotonic() - began, facts=facts)


if __name__ == "__main__":
    sys.exit(main())
