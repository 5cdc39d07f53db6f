from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from handlers.landing.differences import difference_of
from handlers.operate.api.actions import Action, ActionList
from handlers.operate.api.alarms import AlarmList
from handlers.operate.api.approvals import ApprovalList
from handlers.operate.api.dead_letters import DeadLetterList
from handlers.operate.api.documents import (
    PipelineList,
    PipelineSummary,
    RunCheck,
    RunDetail,
    RunLinks,
    RunList,
    RunOrLanding,
    RunReport,
    RunSummary,
    TimelineEntry,
)
from orchestrations.configuration.pipeline import Gate, Source
from orchestrations.contracts.base import Failure
from orchestrations.contracts.checked import CheckedRule
from orchestrations.contracts.comparison import Comparison
from orchestrations.contracts.manifest import encode_line
from orchestrations.contracts.outcomes import PipelineState, rule_of_verdict
from orchestrations.training.judging import judge
from tests.local.operators.page_steps import PICTURES, fits, picture
from tests.local.page.page_server import PageServer
from tests.unit.orchestrations.examples import run_status

if TYPE_CHECKING:
    from playwright.async_api import Page

NOW = datetime.now(UTC)
LONGEST = "a-pipeline-for-images-of-handwritten-abc"
UNBROKEN = "x" * 40
MESSAGE = "the trainer left a file that is " + "very " * 40 + "long"

pytestmark = pytest.mark.asyncio(loop_scope="package")


def run(pipeline: str, **changes: object) -> RunSummary:
    status = run_status(
        f"{pipeline}-0123456789abcdef-1",
        "failed",
        NOW,
        error=Failure(type="InvalidResults", message=MESSAGE, permanent=True),
    )
    return RunSummary.model_validate(
        status.to_dict()
        | {"pipeline": pipeline, "created_at": NOW - timedelta(hours=1), "ended_at": NOW}
        | dict.fromkeys(("compute", "superseded_by", "next_attempt_at"))
        | changes
    )


def detail(
    log: list[str], pipeline: str = LONGEST, gate: dict[str, object] | None = None
) -> RunOrLanding:
    return RunOrLanding(
        RunDetail.model_validate(
            run(pipeline).to_dict()
            | dict.fromkeys(("job_url", "blobs", "bytes", "champion", "diagnosis", "trace_id"))
            | {
                "created_at": NOW - timedelta(hours=1),
                "ended_at": NOW,
                "compute": None,
                "superseded_by": None,
                "next_attempt_at": None,
                "updated_at": NOW,
                "no_cost": "not known",
                "all_metrics": {},
                "log": log,
                "remedy": "Fix the trainer, redrive.",
                "links": RunLinks(
                    previous_attempt=None,
                    next_attempt=None,
                    redriven_as=None,
                    redriven_from=None,
                    superseded_by=None,
                ),
                "parameters": {},
                "data_check": None,
                "champion_check": None,
                "gate": gate,
                "reproduction": None,
                "timeline": [
                    TimelineEntry(state=state, stage=None, began_at=NOW, ended_at=NOW)
                    for state in ("registering", "provisioning", "submitting", "queued", "running")
                ]
                + [TimelineEntry(state="failed", stage=None, began_at=NOW, ended_at=None)],
            }
        )
    )


def pipeline(name: str, state: PipelineState) -> PipelineSummary:
    return PipelineSummary(
        name=name,
        model=name,
        endpoint=None,
        state=state,
        sentence=f"it is {state} since {NOW:%Y-%m-%d %H:%M:%S} UTC",
        paused=None,
        last_run=None,
        last_success=None,
        running=[],
        next_attempt_at=None,
        costs=[],
        currency=None,
        no_cost="not known",
        missing_settings=[],
        compute_warnings=[],
        compute_not_known=[],
    )


def give_now(server: PageServer) -> None:
    """The documents of the screen "now"."""
    training = pipeline("digits", "training").model_copy(update={"running": [run("digits")]})
    server.documents |= {
        "/api/pipelines": PipelineList(pipelines=[training]),
        "/api/dead-letters": DeadLetterList(dead_letters=[], next=None),
        "/api/alarms": AlarmList(alarms=[]),
        "/api/approvals": ApprovalList(approvals=[]),
    }


async def test_long_names_are_not_cut_off(server: PageServer, page: Page) -> None:
    action = Action(
        at=NOW, action="cancel", on=f"run {UNBROKEN}-0123456789abcdef-1", by="a" * 60,
        reason="b" * 300, outcome="c" * 200,
    )  # fmt: skip
    names = (LONGEST, UNBROKEN, "digits")
    server.documents |= {
        "/api/runs": RunList(runs=[run(name) for name in names], next=None),
        "/api/actions": ActionList(actions=[action] * 3, next=None),
        "/api/pipelines": PipelineList(
            pipelines=[
                pipeline(name, "training").model_copy(update={"running": [run(name)]})
                for name in names
            ]
        ),
        "/api/dead-letters": DeadLetterList(dead_letters=[], next=None),
        "/api/alarms": AlarmList(alarms=[]),
        "/api/approvals": ApprovalList(approvals=[]),
    }
    for screen in ("runs", "history", "now", "models"):
        await page.goto(f"{server.url}/api/ui#/{screen}")
        await page.locator("tbody tr").first.wait_for()
        await picture(page, f"long-{screen}", PICTURES)
        assert await fits(page), screen


@pytest.mark.parametrize(
    "address", ["#/runs/%", "#/runs/%E0%A4%A", "#/pipelines/%", "#/models/%:%"]
)
async def test_a_broken_address_is_told(server: PageServer, page: Page, address: str) -> None:
    await page.goto(f"{server.url}/api/ui{address}")
    assert "there is nothing at" in str(await page.get_by_role("alert").first.text_content())


@pytest.mark.parametrize(
    ("earlier", "address"),
    [
        ("dead-letters?after=7", "now?after=7"),
        ("dead-letters/8", "now/8"),
        ("rollouts?after=7_x", "models?after=7_x"),
        ("rollouts/rollout-live-2", "models?rollout=rollout-live-2"),
        ("data/09f1c2aa51be7d3e?pipeline=digits", "pipelines/digits?data=09f1c2aa51be7d3e"),
        ("data?pipeline=digits&path=7/1.png", "history?pipeline=digits&path=7%2F1.png"),
        ("actions?after=7_x", "history?after=7_x"),
    ],
)
async def test_earlier_addresses_lead_to_the_screens_of_now(
    server: PageServer, page: Page, earlier: str, address: str
) -> None:
    await page.goto(f"{server.url}/api/ui#/{earlier}")
    await page.wait_for_url(f"{server.url}/api/ui#/{address}")
    await page.locator("nav [aria-current]").wait_for()


async def test_a_failed_check_shows_its_numbers_and_its_report_is_saved(
    server: PageServer, page: Page
) -> None:
    rules = [
        CheckedRule(name="blank", passed=False, value=0.010989, limit=0, message="3 of 273 images"),
        CheckedRule(name="broken", passed=True, value=0, limit=0),
    ]
    message = "the data check failed: blank is 0.010989 (limit 0): 3 of 273 images"
    check = RunCheck(
        passed=False, message=message, rules=rules, report="store/report.html", job="digits-1",
        job_url=None, cost=None, saved="0.4 node hours: what run digits-2 took",
    )  # fmt: skip
    document = detail([]).model_dump(mode="json") | {"data_check": check.model_dump(mode="json")}
    document |= {"state": "held", "error": None, "remedy": None, "reason": message}
    server.documents["/api/runs/checked"] = RunOrLanding.model_validate(document)
    server.documents[f"/api/runs/{document['id']}/report"] = RunReport(html="<p>3 blank images</p>")
    await page.goto(f"{server.url}/api/ui#/runs/checked")
    section = page.locator("section.check")
    await section.get_by_role("heading", name="Data check: failed").wait_for()
    assert await section.locator("tbody tr").count() == len(rules)
    await picture(page, "check", PICTURES)
    assert await fits(page)
    async with page.expect_download() as saving:
        await section.get_by_role("button", name="Save report").click()
    saved = await saving.value
    assert saved.suggested_filename == f"{document['id']}-report.html"
    assert (await saved.path()).read_text() == "<p>3 blank images</p>"


async def test_a_broken_key_is_taken_as_it_is(server: PageServer, page: Page) -> None:
    give_now(server)
    await page.goto(f"{server.url}/api/ui#key=%&screen=%")
    await page.get_by_role("heading", name="Now", exact=True).wait_for()
    assert await page.evaluate("sessionStorage.getItem('landfall.key')") == "%"


async def test_the_end_of_a_failed_runs_log_is_in_sight(server: PageServer, page: Page) -> None:
    found = detail([f"line {number}" for number in range(60)])
    server.documents[f"/api/runs/{found.root.id}"] = found
    await page.goto(f"{server.url}/api/ui#/runs/{found.root.id}")
    log = page.locator("pre.log")
    await log.wait_for()
    await picture(page, "failed-run", PICTURES)
    box = await log.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 768
    below = "log => log.scrollHeight - log.scrollTop - log.clientHeight"
    assert await log.evaluate(below) < 2


async def test_fifty_slices_with_long_names_fit_on_a_phone(server: PageServer, page: Page) -> None:
    parts = (10, 3, 1, 0), (200, 0, 90, 10)
    kinds = "both_right", "only_champion", "only_challenger", "both_wrong"
    tallies = [dict(zip(kinds, part, strict=True)) for part in parts]
    slices = {f"{UNBROKEN}{n}": tallies[n % 2] for n in range(60)}
    whole = dict(zip(kinds, (900, 50, 100, 50), strict=True))
    comparison = Comparison.model_validate({"metric": "accuracy", "whole": whole, "slices": slices})
    metrics = {"accuracy": 1000 / 1100, "champion_accuracy": 950 / 1100}
    gate = Gate(metric="accuracy", floor=0.5)
    judged = judge(gate, metrics, champion="3", comparison=comparison).judged
    assert judged is not None
    found = detail([], gate=judged.to_dict() | vars(rule_of_verdict(judged.verdict)))
    server.documents[f"/api/runs/{found.root.id}"] = found
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.goto(f"{server.url}/api/ui#/runs/{found.root.id}")
    slices_shown = page.get_by_role("img", name="accuracy by slice: all samples +4.55 points, xxx")
    await slices_shown.get_by_text("-14.3 points, n = 14", exact=True).first.wait_for()
    await page.get_by_text("10 more slices are better than these.").wait_for()
    assert await fits(page)
    await picture(page, "slices-on-a-phone", PICTURES)


async def test_what_needs_a_person_comes_first(server: PageServer, page: Page) -> None:
    server.documents["/api/pipelines"] = PipelineList(
        pipelines=[
            pipeline("a", "idle"),
            pipeline("b", "training"),
            pipeline("c", "needs-a-human"),
            pipeline("d", "retrying"),
            pipeline("e", "needs-a-human"),
        ]
    )
    await page.goto(f"{server.url}/api/ui#/pipelines")
    cards = page.locator("article h2 a")
    await cards.first.wait_for()
    assert await cards.all_text_contents() == ["c", "e", "d", "b", "a"]
    await picture(page, "pipelines-by-need", PICTURES)


async def test_a_silent_api_is_told_and_what_is_known_stays_grey(
    server: PageServer, page: Page
) -> None:
    give_now(server)
    await page.clock.install()
    await page.goto(f"{server.url}/api/ui#/now")
    waiting = page.get_by_role("region", name="Running")
    await waiting.wait_for()
    await page.get_by_text("Nothing: no question").wait_for()
    server.hang()
    sentence = waiting.locator("tbody time").first.locator("..")
    before = await sentence.text_content()
    # The next polls are asked, and not answered.
    for _ in range(12):
        await page.clock.run_for(1_000)
    alert = page.get_by_role("alert").first
    await alert.wait_for()
    assert "No answer since 20" in str(await alert.text_content())
    assert await page.get_by_text("Nothing: no question").count() == 0
    assert await page.get_by_role("alert").count() == 1
    # Relative times do not go on, the silence does.
    known, told = await sentence.text_content(), await alert.text_content()
    await page.clock.run_for(60_000)
    assert await sentence.text_content() == known
    assert await alert.text_content() != told
    assert before is not None
    await picture(page, "silent", PICTURES)
    colors = "element => [getComputedStyle(element).color, getComputedStyle(document.body).color]"
    grey, ink = await waiting.locator("a").first.evaluate(colors)
    assert grey != ink
    server.go_on()
    for _ in range(12):
        await page.clock.run_for(1_000)
    await page.get_by_text("Nothing: no question").wait_for()
    assert await page.get_by_role("alert").count() == 0


async def test_a_dialog_stays_open_when_the_api_falls_silent(
    server: PageServer, page: Page
) -> None:
    found = detail([])
    server.documents[f"/api/runs/{found.root.id}"] = found
    await page.clock.install()
    await page.goto(f"{server.url}/api/ui#/runs/{found.root.id}")
    retry = page.get_by_role("button", name="Retry", exact=True)
    await retry.wait_for()
    server.hang()
    async with page.expect_request("**/api/runs/**"):
        await page.clock.run_for(3_100)
    await retry.click()
    why = page.get_by_role("dialog").get_by_label("Why?")
    await why.fill("the trainer is mended")
    await page.clock.run_for(10_000)
    await page.get_by_role("alert").first.wait_for(state="attached")
    assert await why.input_value() == "the trainer is mended"


async def test_a_hung_service_bus_costs_the_dead_letters_only(
    server: PageServer, page: Page
) -> None:
    give_now(server)
    why = "Service Bus did not answer within 8 s"
    server.problems["/api/dead-letters"] = (503, {"status": 503, "detail": why})
    await page.goto(f"{server.url}/api/ui#/now")
    await page.get_by_text(f"Dead letters are not known: {why}").wait_for()
    await page.get_by_role("region", name="Running").wait_for()
    assert await page.get_by_text("Nothing: no question").count() == 0
    await picture(page, "hung-bus", PICTURES)


async def test_controls_of_terminals_and_of_writing_direction_are_shown(
    server: PageServer, page: Page
) -> None:
    reason = "\u202efdp.exe\x1b[2J\x9b1m\u2066"
    action = Action(
        at=NOW, action="pause", on="pipeline digits", by="ada", reason=reason, outcome=""
    )
    server.documents["/api/actions"] = ActionList(actions=[action], next=None)
    await page.goto(f"{server.url}/api/ui#/history")
    cell = page.get_by_role("cell", name="fdp.exe")
    assert await cell.text_content() == r"\u202efdp.exe\x1b[2J\x9b1m\u2066"
    await page.goto(f"{server.url}/api/ui#/runs/%E2%80%AEfdp.exe")
    await page.get_by_role("alert").first.wait_for()
    assert "\u202e" not in await page.title()
    assert "\u202e" not in await page.content()


async def test_a_page_asks_less_often_while_nothing_changes(server: PageServer, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    give_now(server)
    await page.clock.install()
    await page.goto(f"{server.url}/api/ui#/pipelines")
    await page.locator("article").wait_for()
    for _ in range(60):
        await page.clock.run_for(1_000)
    # After 3, 3, 4.5, 6.75 s, and then after every 10 s.
    assert 5 <= asked.count("/api/pipelines") <= 9
    server.documents["/api/pipelines"] = PipelineList(pipelines=[pipeline("digits", "retrying")])
    for _ in range(11):
        await page.clock.run_for(1_000)
    await page.get_by_text("retrying", exact=True).wait_for()


async def test_what_is_typed_stays_while_the_list_is_read_again(
    server: PageServer, page: Page
) -> None:
    server.documents["/api/runs"] = RunList(runs=[run("digits")], next=None)
    await page.goto(f"{server.url}/api/ui#/runs")
    await page.get_by_role("cell", name="digits", exact=True).wait_for()
    field = page.get_by_label("Pipeline", exact=True)
    await field.press_sequentially("cat")
    server.documents["/api/runs"] = RunList(runs=[run("cats")], next=None)
    await page.evaluate("dispatchEvent(new Event('acted'))")
    await page.get_by_role("cell", name="cats", exact=True).wait_for()
    assert await field.input_value() == "cat"
    await field.press("Enter")
    await page.wait_for_url("**#/runs?pipeline=cat")
    await page.get_by_role("link", name="clear").click()
    await page.wait_for_function("document.querySelector('[data-filter]').value === ''")


async def test_what_changed_in_the_data_is_a_picture(server: PageServer, page: Page) -> None:
    def lines(*paths: str) -> list[bytes]:
        md5 = f"{len(paths):032x}"
        return [encode_line(path, 2048, md5, '"0x1"').encode() for path in sorted(paths)]

    before, after = lines("cat/1.png"), lines("cat/1.png", "dog/2.png")
    source = Source(container="landing")
    document = difference_of(source, ("6d14107ab3046c71", before), "09f1c2aa51be7d3e", after)
    server.documents["/api/pipelines/digits/data/09f1c2aa51be7d3e"] = document
    await page.goto(f"{server.url}/api/ui#/pipelines/digits?data=09f1c2aa51be7d3e")
    await page.get_by_role("img", name="changed 1, added 1").wait_for()
    await page.get_by_role("row", name="dog 0 1 1").first.wait_for()
    assert "1 files have the content of another one" in await page.content()
    await fits(page)
    await picture(page, "difference", PICTURES)
