"""The tasks of docs/operators.md, each with the command line only and with the page only.

For the command line, the commands are read from that script. On the page, the tests click and type
as the script says. The API shows the result.
"""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from demo.waiting import API_POLL_SECONDS, eventually
from tests.local.operators.command_steps import COMMANDS, SCRIPT, commands, do, run
from tests.local.operators.conftest import (
    AGAIN,
    BUSY,
    DISCARDED,
    HELD,
    HELD_BY_PAUSE,
    IN_QUEUE,
    IN_QUEUE_TOO,
    LIMIT_SECONDS,
    PERSONAL,
    SLICED,
    TALKING,
    WAITING,
    Laptop,
)
from tests.local.operators.page_steps import (
    IMAGES,
    PICTURES,
    act,
    answered,
    close,
    fits,
    go,
    open_screen,
    picture,
    row,
)
from tests.replay.situations import pipeline_document

if TYPE_CHECKING:
    from playwright.async_api import Page

# Each task takes less than a minute on a machine of its own; func_only excludes the start of the
# app and the browser.
pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300, func_only=True),
]

TASKS = {
    1: "What failed last night, and why?",
    2: "Stop the bleeding",
    3: "Let a held batch be trained on",
    4: "Redrive all that failed by quota",
    5: "Try a failed run again, or throw its message away",
    6: "Is my file in the model?",
    7: "Roll the champion back",
    8: "Why does this run wait, and why does nothing happen in this pipeline?",
    9: "What did it cost?",
    10: "Is everything in order, and who did what?",
    11: "Train on the same data again",
    12: "Forget a person's files",
    13: "What would another rule have done?",
    14: "Why was a better model kept back?",
    15: "What is the running job doing?",
}


async def runs_of(laptop: Laptop, pipeline: str) -> list[Any]:
    return (await laptop.get(f"/api/runs?pipeline={pipeline}"))[1]["runs"]


async def has_run(laptop: Laptop, pipeline: str, version: str) -> None:
    """Wait for a run on a dataset version; it may first wait for nodes."""
    await laptop.until(
        f"/api/runs?pipeline={pipeline}",
        lambda found: version in {each["dataset_version"] for each in found["runs"]},
    )


async def follows(laptop: Laptop, failed: str, following: str) -> None:
    """Wait until `following` has begun as the next attempt of the run `failed`."""
    begun = await laptop.until(f"/api/runs/{following}", lambda found: found.get("links"))
    assert begun["redriven_from"] == begun["previous_attempt"] == failed
    _, first, _ = await laptop.get(f"/api/runs/{failed}")
    assert first["links"]["redriven_as"] == following


async def test_the_script_has_these_tasks_and_each_is_done_both_ways() -> None:
    headings = re.findall(r"^### (\d+)\. (.*)$", SCRIPT, re.MULTILINE)
    assert {int(number): title for number, title in headings} == TASKS
    assert set(COMMANDS) == {str(number) for number in TASKS}
    for way in ("command", "page"):
        done = {name.split("_")[1] for name in globals() if re.match(rf"test_\d+_{way}_", name)}
        assert done == set(COMMANDS), way


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


async def test_1_page_what_failed_last_night_and_why(laptop: Laptop, page: Page) -> None:
    (last, *_) = await runs_of(laptop, "hopeless")
    _, failed, _ = await laptop.get(f"/api/runs/{last['id']}")
    await go(page, "Runs")
    await page.get_by_label("State").select_option("needs a human")
    evening = (datetime.now(UTC) - timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M")
    await page.get_by_label("Begun from").fill(evening)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**#/runs?*from=*")
    await row(page, "hopeless").get_by_role("link", name=last["id"]).click()
    await page.get_by_role("heading", name=failed["error"]["type"]).wait_for()
    message = failed["error"]["message"].removeprefix(f"{failed['error']['type']}: ")
    await page.get_by_text(message, exact=True).wait_for()
    await page.get_by_text(failed["remedy"]).wait_for()
    await picture(page, "failed-run", PICTURES)


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


async def test_2_page_stop_the_bleeding(laptop: Laptop, page: Page) -> None:
    (under_way,) = await runs_of(laptop, IN_QUEUE_TOO)
    await go(page, "Pipelines")
    await page.get_by_role("link", name=IN_QUEUE_TOO, exact=True).click()
    await close(await act(page, "Pause", "wrong upload"))
    await page.get_by_text("paused by ada since").wait_for()
    await picture(page, "paused", PICTURES)
    await page.get_by_role("link", name=under_way["id"]).first.click()
    await close(await act(page, "Cancel", "wrong upload"))
    await page.get_by_role("heading", name="cancelled").wait_for()
    assert await page.get_by_role("button", name="Cancel").is_disabled()
    _, cancelled, _ = await laptop.get(f"/api/runs/{under_way['id']}")
    assert cancelled["state"] == "cancelled"
    _, pipeline, _ = await laptop.get(f"/api/pipelines/{IN_QUEUE_TOO}")
    assert (pipeline["paused"]["by"], pipeline["paused"]["reason"]) == ("ada", "wrong upload")


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


async def test_3_page_let_a_held_batch_be_trained_on(laptop: Laptop, page: Page) -> None:
    held = (await laptop.get(f"/api/pipelines/{HELD}"))[1]["zones"][0]["held"]
    await go(page, "Pipelines")
    await page.get_by_role("link", name=HELD, exact=True).click()
    zone = page.get_by_role("table", name="Zones")
    await zone.get_by_text(held["dataset_version"]).wait_for()
    await zone.get_by_text(held["message"]).wait_for()
    assert await fits(page)
    await picture(page, "held", PICTURES)
    await close(await act(page, "Release", "they were duplicates"))
    await has_run(laptop, HELD, held["dataset_version"])
    await zone.get_by_text(held["message"]).wait_for(state="detached")


async def test_4_command_redrive_all_that_failed_by_quota(laptop: Laptop) -> None:
    (letter, *_) = await laptop.dead_letters(1, "no-quota")
    listed, redriven = await do(laptop, 4)
    assert "QuotaExceeded" in {each["reason"] for each in listed["dead_letters"]}
    # The runs of the other pipelines without quota are redriven, too.
    (following,) = (each for each in redriven["redriven"] if each.startswith("no-quota-"))
    await follows(laptop, letter["run"], following)


async def test_4_page_redrive_all_that_failed_by_quota(laptop: Laptop, page: Page) -> None:
    (letter, *_) = await laptop.dead_letters(1, "no-quota")
    await go(page, "Now")
    await row(page, letter["run"]).wait_for()
    await picture(page, "operators-page", IMAGES)
    every = page.get_by_role("button", name="Redrive all of QuotaExceeded")
    dialog = await act(page, "Redrive all of QuotaExceeded", "the quota was raised", every)
    redriven = (await answered(dialog))["redriven"]
    await close(dialog)
    (following,) = (each for each in redriven if each.startswith("no-quota-"))
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


async def test_5_page_try_a_failed_run_again_or_throw_its_message_away(
    laptop: Laptop, page: Page
) -> None:
    (letter,) = await laptop.dead_letters(1, DISCARDED[1])
    await go(page, "Now")
    await row(page, letter["run"]).get_by_role("link", name=letter["run"]).click()
    dialog = await act(page, "Retry", "the quota was raised")
    (following,) = (await answered(dialog))["redriven"]
    await close(dialog)
    await page.get_by_role("link", name=following).first.wait_for()
    await follows(laptop, letter["run"], following)
    (again,) = await laptop.dead_letters(1, following)
    await go(page, "Now")
    await row(page, following).get_by_role("link", name="QuotaExceeded").click()
    await page.get_by_role("heading", name="QuotaExceeded").wait_for()
    await picture(page, "dead-letter", PICTURES)
    await close(await act(page, "Discard", "a test of the page"))
    await (
        page.get_by_text("It is no longer there").or_(page.get_by_text("no dead letter")).wait_for()
    )
    assert (await laptop.get(f"/api/dead-letters/{again['id']}"))[0] == 404


async def test_6_command_is_my_file_in_the_model(laptop: Laptop) -> None:
    (explained,) = await do(laptop, 6, BLOB="landing/batches/1")
    assert {model["version"] for model in explained["models"]} == {"1", "2"}


async def test_6_page_is_my_file_in_the_model(page: Page) -> None:
    await go(page, "What happened")
    await page.get_by_label("What became of the blob").fill("landing/batches/3")
    await page.keyboard.press("Enter")
    table = page.get_by_role("table", name="Models that saw it")
    await table.get_by_role("link", name="version 2", exact=True).click()
    # In the other direction: from a model to its blobs.
    await page.get_by_role("img", name="Lineage: dataset").wait_for()
    await picture(page, "model", PICTURES)
    await page.get_by_role("link", name="1", exact=True).click()
    await table.get_by_role("link", name="version 1", exact=True).wait_for()
    assert await page.get_by_label("What became of the blob").input_value() == "landing/batches/1"
    await picture(page, "data", PICTURES)


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


async def test_7_page_roll_the_champion_back(laptop: Laptop, page: Page) -> None:
    await go(page, "Models")
    await page.get_by_role("link", name="batches", exact=True).click()
    await page.get_by_role("img", name="accuracy over versions: version 1: 0.7").wait_for()
    await picture(page, "operators-models", IMAGES)
    for action, champion in (("Roll back", "1"), ("Promote", "2")):
        button = row(page, "version 2").get_by_role("button", name=action)
        await close(await act(page, action, "wrong answers since 02:00", button))
        in_service = page.get_by_text("In service:")
        await in_service.get_by_role("link", name=f"version {champion}", exact=True).wait_for()
        _, pipeline, _ = await laptop.get("/api/pipelines/batches")
        assert pipeline["champion"] == {"version": champion}


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


async def test_8_page_why_does_this_run_wait(laptop: Laptop, page: Page) -> None:
    (waits,) = await runs_of(laptop, IN_QUEUE)
    await go(page, "Pipelines")
    await page.get_by_text("waits for the marker _SUCCESS, which has not come").wait_for()
    await go(page, "Compute and cost")
    line = row(page.get_by_role("region", name="Queue poor"), waits["id"])
    await line.get_by_text("more than the whole budget").wait_for()
    await picture(page, "compute", PICTURES)


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


async def test_9_page_what_did_it_cost(laptop: Laptop, page: Page) -> None:
    (ended,) = await runs_of(laptop, "admitted")
    amount = f"{ended['cost']['amount']:,.2f} USD"
    await go(page, "Compute and cost")
    costs = page.get_by_role("table", name="Cost")
    await costs.get_by_role("cell", name=amount).wait_for()
    await costs.get_by_role("link", name="admitted").click()
    await page.get_by_text(f"{amount} in 20").wait_for()
    await page.get_by_role("table", name="Runs").get_by_role("link", name=ended["id"]).click()
    await page.get_by_text("at 100.00 USD a node-hour").wait_for()
    await page.get_by_text(f"{amount} in queue open").wait_for()
    await picture(page, "cost", PICTURES)


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


async def test_10_page_is_everything_in_order_and_who_did_what(laptop: Laptop, page: Page) -> None:
    await laptop.dead_letters(1, "no-quota")
    await laptop.post("/api/pipelines/batches/resume", by="ada", reason="drill of the page")
    await go(page, "Now")
    human = page.get_by_role("region", name="Needs a human")
    await human.get_by_role("link", name="QuotaExceeded").first.wait_for()
    await human.get_by_text("Ask for quota, or add a compute option").first.wait_for()
    assert laptop.key not in page.url
    await go(page, "What happened")
    done = row(page, "drill of the page")
    await done.get_by_role("cell", name="ada", exact=True).wait_for()
    await picture(page, "history", PICTURES)


async def trained_again(laptop: Laptop, requested: str, seed: int) -> str:
    """Wait for the run of a request: it has the seed, and so has the model that it registers."""

    landing = await laptop.until(f"/api/runs/{requested}", lambda found: found["run"] and found)
    assert landing["outcome"] in (None, "started")
    run = await laptop.until(
        f"/api/runs/{landing['run']}", lambda found: found.get("model") and found
    )
    assert run["parameters"] == {"seed": seed}
    _, model, _ = await laptop.get(f"/api/pipelines/{AGAIN}/models/{run['model']['version']}")
    assert model["parameters"] == {"seed": seed}
    return landing["run"]


async def test_11_command_train_on_the_same_data_again(laptop: Laptop) -> None:
    (line,) = commands(11)
    await run(laptop, line.replace("seed=8", "seed=-1"), 2, PIPELINE=AGAIN)
    requested = await run(laptop, line, PIPELINE=AGAIN)
    await trained_again(laptop, requested["id"], 8)


async def test_11_page_train_on_the_same_data_again(laptop: Laptop, page: Page) -> None:
    await go(page, "Pipelines")
    await page.get_by_role("link", name=AGAIN, exact=True).click()
    dialog = await act(page, "Train", "another seed", seed="9")
    requested = await answered(dialog)
    await close(dialog)
    run = await trained_again(laptop, requested["id"], 9)
    await page.get_by_role("table", name="Runs").get_by_role("link", name=run).click()
    await page.get_by_text("seed = 9").wait_for()


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


async def test_12_page_forget_a_persons_files(laptop: Laptop, page: Page) -> None:
    await go(page, "What happened")
    await page.get_by_label("What became of the blob").fill(f"landing/{PERSONAL}/person")
    await page.keyboard.press("Enter")
    dialog = await act(page, "Forget", "a person asked")
    asked = await answered(dialog)
    await close(dialog)
    await laptop.until(asked["status_url"], lambda found: found["done_at"])
    await open_screen(page, "history")
    await page.get_by_role("link", name=asked["id"]).click()
    models = page.get_by_role("table", name="Models that were trained on them")
    await models.get_by_role("link", name="version 1", exact=True).wait_for()
    assert await fits(page)
    await picture(page, "forgotten", PICTURES)


def file_of_batches(floor: float) -> str:
    """`pipeline.yml` of the pipeline `batches`, with another gate."""
    document = pipeline_document("batches")
    document["gate"]["floor"] = floor
    return yaml.safe_dump(document)


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


async def test_13_page_what_would_another_rule_have_done(page: Page) -> None:
    await go(page, "Pipelines")
    await page.get_by_role("link", name="batches", exact=True).click()
    await page.get_by_role("link", name="What if …").click()
    await page.get_by_label("A changed pipeline.yml").fill(file_of_batches(0.8))
    await page.get_by_role("button", name="Decide").click()
    await page.get_by_text(
        re.compile("^2 of [23] batches would have become something else")
    ).wait_for()
    await page.get_by_role("img", name="recorded above, what if below; 2 differ").wait_for()
    assert await fits(page)
    await picture(page, "what-if", PICTURES)


KEPT_BACK = (
    "accuracy 0.9: better than champion 1 by 30 points, p < 0.0001, 1,000 samples, but label:7 "
    "fell by 30 points (p < 0.0001, n = 200, gate.slices allows 5 points)"
)
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


async def test_14_page_why_was_a_better_model_kept_back(page: Page) -> None:
    await go(page, "Runs")
    await page.get_by_label("Pipeline").fill(SLICED)
    await page.keyboard.press("Enter")
    await page.get_by_label("State").select_option("not promoted")
    await row(page, KEPT_BACK).get_by_role("link", name=SLICED).first.click()
    await page.get_by_text(KEPT_BACK, exact=True).wait_for()
    await page.get_by_role("heading", name="a slice fell: a person should look").wait_for()
    slices = page.get_by_role("img", name="accuracy by slice: all samples +30 points, label:7 -30")
    await slices.get_by_text("-30 points, n = 200, fell").wait_for()
    await slices.get_by_text("-10 points, n = 40, small").wait_for()
    assert await fits(page)
    await picture(page, "operators-slices", IMAGES)


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


async def test_15_page_what_is_the_running_job_doing(laptop: Laptop, page: Page) -> None:
    (run,) = await runs_of(laptop, TALKING)
    await go(page, "Runs")
    await page.get_by_label("State").select_option("unfinished")
    await row(page, TALKING).get_by_role("link", name=run["id"]).click()
    told = re.compile(r"running; user_logs/std_log\.txt; CPU \d+ %, memory \d+ % at")
    await page.get_by_text(told).wait_for()
    log = page.locator("pre.log")
    last = str(await log.text_content()).splitlines()[-1]
    assert re.fullmatch(r"step \d+\\x1b\[2J", last), "it is shown, and not obeyed"
    goes_on = "last => !document.querySelector('pre.log').textContent.trimEnd().endsWith(last)"
    await page.wait_for_function(goes_on, arg=last)
    assert await log.evaluate("log => log.scrollHeight - log.scrollTop - log.clientHeight") < 2
    assert await fits(page)
    await picture(page, "running-log", PICTURES)
