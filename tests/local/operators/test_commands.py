"""The tasks of docs/operators.md, each with the commands that stand there."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from string import Template
from typing import Any

import pytest
from typer.testing import CliRunner

from handlers.configuration.settings import APP_FOLDER
from landfall_cli.__main__ import app
from tests.local.operators.conftest import BUSY, IN_QUEUE, WAITING, Laptop

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

PAGE = (APP_FOLDER / "docs" / "operators.md").read_text("utf-8")
TASKS = dict(re.findall(r"^### (\d+)\. .*?\n```console\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
# They ask before they act.
ACTIONS = {
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


async def do(laptop: Laptop, task: int, *, exits: int = 0, **names: str) -> list[Any]:
    """Run the commands of a task, one after another; the documents that they print."""
    return [await run(laptop, line, names, exits) for line in commands(task)]


def commands(task: int) -> list[str]:
    return [line.removeprefix("$ landfall ") for line in TASKS[str(task)].splitlines()]


async def run(laptop: Laptop, line: str, names: dict[str, str], exits: int = 0) -> Any:
    arguments = shlex.split(Template(line).substitute(names))
    given = ["--url", laptop.url, "--key", laptop.key, "--json", *arguments]
    if ACTIONS & set(arguments[:2]):
        given.append("--yes")
    done = await asyncio.to_thread(CliRunner().invoke, app, given)
    assert done.exit_code == exits, (line, done.output)
    return json.loads(done.output)


async def test_every_task_of_the_page_is_done_here() -> None:
    tests = [name for name in globals() if name.startswith("test_")]
    done = {number for name in tests for number in re.findall(r"_(\d+)", name)}
    assert done == set(TASKS) == {str(number) for number in range(1, 13)}


async def test_1_what_failed_last_night_and_why(laptop: Laptop) -> None:
    evening = (datetime.now(UTC) - timedelta(hours=12)).isoformat(timespec="seconds")
    runs = (await laptop.get("/api/runs?pipeline=hopeless"))[1]["runs"]
    listed, shown = await do(laptop, 1, LAST_EVENING=evening, RUN=runs[0]["id"])
    assert {run["pipeline"] for run in listed["runs"]} >= {"hopeless", "no-quota"}
    assert shown["error"]["type"] == "JobFailed"
    assert shown["remedy"]


async def test_2_and_3_stop_the_bleeding_and_go_on(laptop: Laptop) -> None:
    runs = f"/api/runs?pipeline={BUSY}&state=unfinished"
    (under_way,) = (await laptop.get(runs))[1]["runs"]
    paused, listed, _ = await do(laptop, 2, PIPELINE=BUSY, RUN=under_way["id"])
    assert paused["changed"]
    assert [run["id"] for run in listed["runs"]] == [under_way["id"]]
    await laptop.until(f"/api/runs/{under_way['id']}", lambda run: run["state"] == "cancelled")
    # What lands now is held, and the page of a blob says why.
    await laptop.busy.land("2", accuracy=0.9)
    path = f"/api/pipelines/{BUSY}"
    held = await laptop.until(path, lambda found: found["zones"][0]["held"])
    assert held["reason"] == "paused"
    explained = (await laptop.get(f"/api/explain?blob=landing/{BUSY}/2"))[1]
    assert explained["state"] == "held"
    assert "wrong upload" in explained["reason"]
    _, detail, _ = await laptop.get(path)
    assert detail["state"] == "paused"
    assert (await laptop.get(runs))[1]["runs"] == []
    version = held["dataset_version"]
    shown, released, resumed = await do(laptop, 3, PIPELINE=BUSY, DATASET_VERSION=version)
    assert shown["zones"][0]["held"] == held
    assert released["id"] == f"landing-{BUSY}"
    assert resumed == {"paused": None, "changed": True, "landings": resumed["landings"]}
    ended = f"/api/runs?pipeline={BUSY}&state=succeeded"
    (run,) = await laptop.until(ended, lambda found: found["runs"])
    assert run["dataset_version"] == version
    explained = (await laptop.get(f"/api/explain?blob=landing/{BUSY}/2"))[1]
    assert (explained["state"], explained["run"]) == ("run", run["id"])


async def test_4_redrive_what_failed_by_quota(laptop: Laptop) -> None:
    await laptop.dead_letters(1, "no-quota")
    listed, redriven = await do(laptop, 4)
    assert "QuotaExceeded" in {letter["reason"] for letter in listed["dead_letters"]}
    # Of the other pipeline without quota they are redriven, too.
    (following,) = (run for run in redriven["redriven"] if run.startswith("no-quota-"))
    shown = await laptop.until(
        f"/api/runs/{following}", lambda run: run.get("state") == "rejected" and run
    )
    assert shown["links"]["redriven_from"] == shown["links"]["previous_attempt"]
    _, first, _ = await laptop.get(f"/api/runs/{shown['links']['previous_attempt']}")
    assert first["links"]["redriven_as"] == following


async def test_5_retry_a_failed_run(laptop: Laptop) -> None:
    letters = await laptop.dead_letters(1, "hopeless")
    letter = next(each for each in letters if "hopeless" in each["run"])
    (redriven,) = await do(laptop, 5, RUN=letter["run"])
    (following,) = redriven["redriven"]
    await laptop.until(f"/api/runs/{following}", lambda run: run.get("state") == "failed")


async def test_6_throw_a_message_away(laptop: Laptop) -> None:
    letters = await laptop.dead_letters(1, "hopeless")
    number = next(each["id"] for each in letters if "hopeless" in each["run"])
    shown, discarded = await do(laptop, 6, DEAD_LETTER=str(number))
    assert shown["body"]
    assert discarded == {"discarded": [number]}
    left = (await laptop.get("/api/dead-letters"))[1]["dead_letters"]
    assert number not in [letter["id"] for letter in left]


async def test_7_is_my_file_in_the_model(laptop: Laptop) -> None:
    (explained,) = await do(laptop, 7, BLOB="landing/batches/1")
    assert {model["version"] for model in explained["models"]} == {"1", "2"}


async def test_8_roll_the_champion_back(laptop: Laptop) -> None:
    listed, back, forward = await do(laptop, 8, PIPELINE="batches", VERSION="2")
    assert listed["champion"] == "2"
    assert back == {"champion": "1", "changed": True}
    assert forward == {"champion": "2", "changed": True}


async def test_9_why_nothing_happens(laptop: Laptop) -> None:
    (shown,) = await do(laptop, 9, PIPELINE=WAITING)
    assert shown["sentence"].startswith("waits for the marker _SUCCESS, which has not come")


async def test_10_is_everything_in_order_and_who_did_what(laptop: Laptop) -> None:
    doctor, alarms, actions = commands(10)
    checks = (await run(laptop, doctor, {}, exits=1))["checks"]
    verdicts = {check["name"]: check["verdict"] for check in checks}
    assert verdicts["pipeline no-quota"] == "bad"
    assert verdicts["pipeline batches"] == "good"
    assert (await run(laptop, alarms, {})) == {"alarms": []}
    await run(laptop, "pipelines resume batches --reason drill", {})
    newest = (await run(laptop, actions, {}))["actions"][0]
    assert (newest["action"], newest["reason"]) == ("resume", "drill")


async def test_11_what_did_it_cost(laptop: Laptop) -> None:
    (run,) = (await laptop.get("/api/runs?pipeline=admitted"))[1]["runs"]
    queues, pipeline, shown = await do(laptop, 11, PIPELINE="admitted", RUN=run["id"])
    assert shown["cost"]["amount"] > 0
    assert queues["costs"] == pipeline["costs"]
    assert queues["costs"][0]["amount"] == pytest.approx(shown["cost"]["amount"], abs=0.005)


async def test_12_why_does_this_run_wait(laptop: Laptop) -> None:
    (shown,) = await do(laptop, 12)
    flavors = {each["name"]: each for each in shown["flavors"]}
    assert flavors["queued"]["price_per_node_hour"] == 100
    waiting = {
        run["pipeline"]: run["sentence"] for each in shown["queues"] for run in each["waiting"]
    }
    if IN_QUEUE in waiting:  # the page's test cancels it
        assert "more than the whole budget" in waiting[IN_QUEUE]
