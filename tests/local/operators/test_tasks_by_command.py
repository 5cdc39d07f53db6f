"""The tasks of docs/operators.md with the command line only.

Its commands are read from that script. The API shows the result.
"""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from typing import Any

import pytest

from demo.waiting import API_POLL_SECONDS, eventually
from tests.local.operators.command_steps import commands, do, run
from tests.local.operators.conftest import (
    AGAIN,
    BUSY,
    DISCARDED,
    HELD_BY_PAUSE,
    IN_QUEUE,
    LIMIT_SECONDS,
    PERSONAL,
    SLICED,
    TALKING,
    WAITING,
    Laptop,
)
from tests.local.operators.task_effects import (
    KEPT_BACK,
    file_of_batches,
    follows,
    has_run,
    runs_of,
    trained_again,
)

# Each task takes less than a minute on a machine of its own; func_only excludes the start of the
# app and the browser.
pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300, func_only=True),
]


async def test_1_command_what_failed_last_night_and_why(laptop: Laptop) -> None:
    evening = (datetime.now(UTC) - timedelta(hours=12)).isoformat(timespec="seconds")
    last, first = await runs_of(laptop, "hopeless")
    listed, shown = await do(laptop, 1, LAST_EVENING=evening, RUN=last["id"])
    assert listed["runs"]
    assert {each["state"] for each in listed["runs"]} <= {"failed", "rejected"}
    states = [step["state"] for step in shown["timeline"]]
    assert states[:4] == ["registering", "provisioning", "submitting", "queued"]
    assert states[-1] == shown["state"] == "failed"
    assert all(step["ended_at"] for step in shown["timeline"][:-1])
    assert shown["compute"]["nodes"] == 4
    assert shown["error"]["type"] == "JobFailed"
    assert shown["remedy"]
    assert shown["links"]["previous_attempt"] == first["id"]
    _, before, _ = await laptop.get(f"/api/runs/{first['id']}")
    assert before["links"]["next_attempt"] == last["id"]
    assert before["next_attempt_at"]


async def test_2_command_stop_the_bleeding(laptop: Laptop) -> None:
    (under_way,) = await runs_of(laptop, BUSY)
    paused, listed, _ = await do(laptop, 2, PIPELINE=BUSY, RUN=under_way["id"])
    assert paused["changed"]
    assert [each["id"] for each in listed["runs"]] == [under_way["id"]]

    async def is_cancelled() -> bool:
        await laptop.wake_up(under_way["id"])
        _, found, _ = await laptop.get(f"/api/runs/{under_way['id']}")
        return found["state"] == "cancelled"

    await eventually(is_cancelled, LIMIT_SECONDS, f"end of {under_way['id']}", API_POLL_SECONDS)
    _, pipeline, _ = await laptop.get(f"/api/pipelines/{BUSY}")
    assert (pipeline["state"], pipeline["paused"]["reason"]) == ("paused", "wrong upload")


async def test_3_command_let_a_held_batch_be_trained_on(laptop: Laptop) -> None:
    path = f"/api/pipelines/{HELD_BY_PAUSE}"
    held = (await laptop.get(path))[1]["zones"][0]["held"]
    assert held["reason"] == "paused"
    _, explained, _ = await laptop.get(f"/api/explain?blob=landing/{HELD_BY_PAUSE}/1")
    assert explained["state"] == "held"
    assert "wrong upload" in explained["reason"]
    version = held["dataset_version"]
    shown, released, resumed = await do(laptop, 3, PIPELINE=HELD_BY_PAUSE, DATASET_VERSION=version)
    assert shown["zones"][0]["held"] == held
    assert released["id"] == f"landing-{HELD_BY_PAUSE}"
    assert resumed == {"paused": None, "changed": True, "landings": resumed["landings"]}
    await has_run(laptop, HELD_BY_PAUSE, version)
    _, explained, _ = await laptop.get(f"/api/explain?blob=landing/{HELD_BY_PAUSE}/1")
    assert explained["state"] == "run"


async def test_4_command_redrive_all_that_failed_by_quota(laptop: Laptop) -> None:
    (letter, *_) = await laptop.dead_letters(1, "no-quota")
    listed, redriven = await do(laptop, 4)
    assert "QuotaExceeded" in {each["reason"] for each in listed["dead_letters"]}
    # The runs of the other pipelines without quota are redriven, too.
    (following,) = (each for each in redriven["redriven"] if each.startswith("no-quota-"))
    await follows(laptop, letter["run"], following)


async def test_5_command_try_a_failed_run_again_or_throw_its_message_away(laptop: Laptop) -> None:
    listing, retry, show, discard = commands(5)
    (letter,) = await laptop.dead_letters(1, DISCARDED[0])
    listed = await run(laptop, listing)
    assert letter in listed["dead_letters"]
    redriven = await run(laptop, retry, RUN=letter["run"])
    (following,) = redriven["redriven"]
    await follows(laptop, letter["run"], following)
    (again,) = await laptop.dead_letters(1, following)
    number = str(again["id"])
    assert (await run(laptop, show, DEAD_LETTER=number))["body"]
    discarded = await run(laptop, discard, DEAD_LETTER=number)
    assert discarded == {"discarded": [again["id"]]}
    assert (await laptop.get(f"/api/dead-letters/{number}"))[0] == 404


async def test_6_command_is_my_file_in_the_model(laptop: Laptop) -> None:
    (explained,) = await do(laptop, 6, BLOB="landing/batches/1")
    assert {model["version"] for model in explained["models"]} == {"1", "2"}


def moved(champion: str, *, changed: bool) -> dict[str, Any]:
    """The answer to a change of the champion of a pipeline without an endpoint."""
    return {
        "champion": champion,
        "changed": changed,
        "endpoint": "none",
        "message": "Landfall manages no endpoint for this pipeline: no traffic was moved.",
        "rollout": None,
        "status_url": None,
    }


async def test_7_command_roll_the_champion_back(laptop: Laptop) -> None:
    listing, rollback, promote = commands(7)
    listed = await run(laptop, listing, PIPELINE="batches")
    assert [each["stage"] for each in listed["models"]] == ["champion", "former"]
    back = await run(laptop, rollback, MODEL="batches")
    assert (listed["champion"], back) == ("2", moved("1", changed=True))
    again = await run(laptop, rollback, MODEL="batches:2")
    assert again == moved("1", changed=False)
    await run(laptop, rollback, 5, MODEL="batches")  # there is no version before 1
    await run(laptop, promote, 4, PIPELINE="batches", VERSION="9")
    forward = await run(laptop, promote, PIPELINE="batches", VERSION="2")
    assert forward == moved("2", changed=True)
    _, kept, _ = await laptop.get("/api/actions?limit=3")
    done = [(each["action"], each["on"]) for each in kept["actions"]]
    assert done == [(action, "model batches:2") for action in ("promote", "rollback", "rollback")]


async def test_8_command_why_does_this_run_wait(laptop: Laptop) -> None:
    queues, pipeline = await do(laptop, 8, PIPELINE=WAITING)
    assert pipeline["state"] == "settling"
    assert pipeline["sentence"].startswith("waits for the marker _SUCCESS, which has not come")
    flavors = {each["name"]: each for each in queues["flavors"]}
    assert flavors["queued"]["price_per_node_hour"] == 100
    waiting = {
        each["pipeline"]: each["sentence"]
        for queue in queues["queues"]
        for each in queue["waiting"]
    }
    assert "more than the whole budget" in waiting[IN_QUEUE]


async def test_9_command_what_did_it_cost(laptop: Laptop) -> None:
    (ended,) = await runs_of(laptop, "admitted")
    names = {"PIPELINE": "admitted", "RUN": ended["id"]}
    queues, pipeline, shown = await do(laptop, 9, **names)
    cost = shown["cost"]
    amount = cost["node_seconds"] / 3600 * cost["price_per_node_hour"]
    assert cost["amount"] == pytest.approx(amount)
    (month,) = queues["costs"]
    assert (month["pipeline"], month["queue"], month["runs"]) == ("admitted", "open", 1)
    assert month["amount"] == pytest.approx(amount, abs=0.005)
    assert (pipeline["costs"], pipeline["currency"]) == ([month], "USD")
    for line in commands(9):
        table = await laptop.command(*shlex.split(Template(line).substitute(names)))
        assert f"{amount:,.2f} USD" in table.output, line


async def test_10_command_is_everything_in_order_and_who_did_what(laptop: Laptop) -> None:
    doctor, alarms, actions = commands(10)
    checks = (await run(laptop, doctor, 1))["checks"]
    verdicts = {check["name"]: check["verdict"] for check in checks}
    assert verdicts["pipeline no-quota"] == "bad"
    assert verdicts["pipeline batches"] == "good"
    assert (await run(laptop, alarms)) == {"alarms": []}
    await run(laptop, "pipelines resume batches --reason drill")
    newest = (await run(laptop, actions))["actions"][0]
    assert (newest["action"], newest["reason"]) == ("resume", "drill")


async def test_11_command_train_on_the_same_data_again(laptop: Laptop) -> None:
    (line,) = commands(11)
    await run(laptop, line.replace("seed=8", "seed=-1"), 2, PIPELINE=AGAIN)
    requested = await run(laptop, line, PIPELINE=AGAIN)
    await trained_again(laptop, requested["id"], 8)


async def test_12_command_forget_a_persons_files(laptop: Laptop, tmp_path: Path) -> None:
    forget, forgotten = commands(12)
    file = tmp_path / "blobs.txt"
    file.write_text("landing/nobody/1\n")
    await run(laptop, forget, 2, FILE=str(file))
    file.write_text(f"landing/{PERSONAL}/person\n")
    asked = await run(laptop, forget, FILE=str(file))
    await laptop.until(asked["status_url"], lambda found: found["done_at"])
    found = await run(laptop, forgotten, REQUEST=asked["id"])
    assert (found["asked_blobs"], found["contents"]) == (1, 1)
    (model,) = found["models"]
    assert (model["name"], model["version"], model["in_service"]) == (PERSONAL, "1", True)
    assert [each["blobs"] for each in found["versions"]] == [1]
    _, explained, _ = await laptop.get(f"/api/explain?blob=landing/{PERSONAL}/person")
    assert asked["id"] in explained["reason"]


async def test_13_command_what_would_another_rule_have_done(laptop: Laptop, tmp_path: Path) -> None:
    (line,) = commands(13)
    file = tmp_path / "pipeline.yml"
    for floor, exits, models in (
        (0.5, 0, ["promoted", "promoted"]),
        (0.8, 1, ["not-promoted", "unknown"]),
    ):
        file.write_text(file_of_batches(floor))
        found = await run(laptop, line, exits, FILE=str(file), PIPELINE="batches")
        # An event that was late has opened a batch with the same content.
        trained = [each for each in found["batches"] if each["recorded_model"] != "none"]
        assert [each["what_if_model"] for each in trained] == models
        assert [each["recorded_model"] for each in trained] == ["promoted"] * 2
        assert found["what_if"]["node_hours"] == pytest.approx(found["recorded"]["node_hours"])
    file.write_text("gate: {floor: high}")
    await run(laptop, line, 2, FILE=str(file), PIPELINE="batches")


LET_THROUGH = (
    "accuracy 0.9: better than champion 1 by 30 points, p < 0.0001, 1,000 samples; label:9 fell by "
    "10 points, not significant (p = 0.062, n = 40, small)"
)


async def test_14_command_why_was_a_better_model_kept_back(laptop: Laptop) -> None:
    (kept_back,) = (await laptop.get(f"/api/runs?pipeline={SLICED}&state=not_promoted"))[1]["runs"]
    listed, shown, explained = await do(
        laptop, 14, PIPELINE=SLICED, RUN=kept_back["id"], BLOB=f"landing/{SLICED}/2"
    )
    assert [each["reason"] for each in listed["runs"]] == [KEPT_BACK]
    gate = shown["gate"]
    assert (gate["verdict"], gate["needs_a_person"]) == ("slice-fell", True)
    assert [(it["name"], it["outcome"]) for it in gate["slices"]] == [
        ("label:7", "fell"),
        ("label:9", "small"),
        ("label:8", "kept"),
    ]
    assert KEPT_BACK in explained["reason"]
    for_people = await laptop.command("runs", "get", kept_back["id"])
    assert re.search(r"^label:7 +-30 points +8\.7e-19 +200 +fell$", for_people.output, re.MULTILINE)
    # The next model is better everywhere that counts: it replaces the champion.
    (promoted, _) = (await laptop.get(f"/api/runs?pipeline={SLICED}&state=succeeded"))[1]["runs"]
    assert (promoted["verdict"], promoted["reason"]) == ("better", LET_THROUGH)
    _, models, _ = await laptop.get(f"/api/pipelines/{SLICED}/models")
    assert [each["version"] for each in models["models"]] == ["2", "1"]


async def test_15_command_what_is_the_running_job_doing(laptop: Laptop) -> None:
    (run,) = await runs_of(laptop, TALKING)
    await laptop.until(f"/api/runs/{run['id']}/logs", lambda found: found["text"])
    listed, shown = await do(laptop, 15, RUN=run["id"])
    assert run["id"] in {each["id"] for each in listed["runs"]}
    assert (shown["job"], shown["state"], shown["has_ended"]) == (run["id"], "running", False)
    assert shown["text"].splitlines()[-1].startswith("step ")
    assert shown["no_utilisation"] is None
    for_people = await laptop.command("logs", run["id"], "--lines", "1")
    head = rf"job {run['id']}: running; user_logs/std_log\.txt; CPU \d+ %, memory \d+ %"
    assert re.fullmatch(rf"{head}\nstep \d+\\x1b\[2J\n", for_people.output)
