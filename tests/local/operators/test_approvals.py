"""People let a model be registered: with the command line, and with the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from handlers.notify.page_links import approval_link, notification_links
from handlers.platform.settings import Settings
from orchestrations.contracts.approvals import Agreed
from orchestrations.contracts.notifications import Notification
from tests.local.operators.conftest import (
    AGAIN,
    ASKED,
    ASKED_BY_LINK,
    ASKED_TOO,
    LINK_SECRET,
    Laptop,
)
from tests.local.operators.page_steps import (
    PICTURES,
    act,
    answered,
    close,
    go,
    open_screen,
    picture,
    row,
)
from tests.unit.orchestrations.examples import run_status

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


async def question_about(laptop: Laptop, pipeline: str) -> Any:
    def find(found: Any) -> Any:
        return [it for it in found["approvals"] if it["agreed"]["pipeline"] == pipeline]

    (asked,) = await laptop.until("/api/approvals", find)
    return asked


async def test_a_person_looks_at_a_model_and_approves_it(laptop: Laptop) -> None:
    asked = await question_about(laptop, ASKED)
    name, run, shown_hash = asked["id"], asked["agreed"]["run"], asked["hash"]
    assert asked["agreed"]["metrics"] == {"accuracy": 0.7}
    listed = await laptop.command("approvals", "list")
    assert name in listed.stdout
    shown = await laptop.command("approvals", "get", name)
    for text in ("accuracy 0.7", "there is no champion", "ada", shown_hash):
        assert text in shown.stdout

    path = f"/api/approvals/{name}"
    given = {"by": "ada", "reason": "good on all labels"}
    status, problem = await laptop.post(f"{path}/approve", **given, hash="of something else")
    assert (status, problem["type"]) == (409, "/problems/approval-changed")
    status, problem = await laptop.post(f"{path}/approve", reason="why not", hash=shown_hash)
    assert (status, problem["type"]) == (403, "/problems/not-allowed-to-answer")
    assert (await laptop.get(f"/api/runs/{run}"))[1]["state"] == "judging"

    said = ["--by", "ada", "--reason", "good on all labels", "--yes"]
    answered = await laptop.command("approvals", "approve", name, *said)
    assert answered.exit_code == 0, answered.output
    assert "answered: approve by ada" in answered.stdout
    again, _ = await laptop.post(f"{path}/approve", **given, hash=shown_hash)
    assert again == 200
    status, problem = await laptop.post(f"{path}/reject", **given, hash=shown_hash)
    assert (status, problem["type"]) == (409, "/problems/approval-over")
    assert "approved by ada: good on all labels" in problem["detail"]

    await laptop.until(f"/api/runs/{run}", lambda found: found["state"] == "succeeded")
    _, model, _ = await laptop.get(f"/api/pipelines/{ASKED}/models/1")
    assert model["approvals"] == {"registration": "approved by ada: good on all labels"}
    _, done, _ = await laptop.get("/api/actions")
    assert ("approve", f"approval {name}") in [(it["action"], it["on"]) for it in done["actions"]]
    _, still, _ = await laptop.get("/api/approvals")
    assert name not in [each["id"] for each in still["approvals"]]


async def test_a_person_rejects_a_model_on_the_page(laptop: Laptop, page: Page) -> None:
    asked = await question_about(laptop, ASKED_TOO)
    run = asked["agreed"]["run"]
    await open_screen(page, f"runs/{run}")
    shown = page.get_by_label("Approval")
    await shown.get_by_text("there is no champion").wait_for()
    assert (await laptop.get(f"/api/approvals/{asked['id']}"))[1]["is_open"], "it was only opened"
    answer = await answered(await act(page, "Reject", "wrong labels"))
    assert (answer["answer"]["verb"], answer["answer"]["by"]) == ("reject", "ada")
    ended = await laptop.until(
        f"/api/runs/{run}", lambda found: found if found["state"] == "not_promoted" else None
    )
    assert ended["reason"] == "rejected by ada: wrong labels"


async def test_a_person_brings_a_version_to_production(laptop: Laptop, page: Page) -> None:
    await open_screen(page, f"models/{AGAIN}:1")
    asked = await answered(await act(page, "Promote to production", "better on all labels"))
    await close(page.get_by_role("dialog"))
    question = await question_about(laptop, AGAIN)
    assert question["agreed"]["destination"].endswith("/workspaces/production")

    await go(page, "Now")
    await page.get_by_role("link", name=f"Approve {question['agreed']['model']} before").click()
    await act(page, "Approve", "agreed")
    await close(page.get_by_role("dialog"))
    await row(page, "promoted").wait_for()
    given = ["--to", "production", "--reason", "once more", "--by", "ada", "--yes"]
    there = await laptop.command("promote", f"{AGAIN}:1", *given)
    assert there.exit_code == 0, there.output
    assert f"{question['agreed']['model']} is in production" in there.stdout
    _, listed, _ = await laptop.get(asked["status_url"])
    (promotion,) = listed["promotions"]
    assert promotion["approved"] == "approved by ada: agreed"


async def test_a_person_approves_by_the_link_of_an_alert_without_a_key(
    laptop: Laptop, browser: Browser
) -> None:
    asked = await question_about(laptop, ASKED_BY_LINK)
    name, run = asked["id"], asked["agreed"]["run"]
    host = laptop.url.removeprefix("http://")
    settings = Settings({"WEBSITE_HOSTNAME": host, "APPROVAL_LINK_SECRET": LINK_SECRET})
    link = str(approval_link(settings, Agreed.from_dict(asked["agreed"])))
    token = link.rpartition("/")[2]

    path = f"{laptop.url}/api/approval-links"
    given = {"by": "ada", "reason": "good on all labels", "hash": asked["hash"]}
    for forged, verb, expected in (
        (f"{token}x", "approve", (401, "/problems/bad-link")),
        (f"x{token}", "approve", (401, "/problems/bad-link")),
        (token, "delete", (404, "/problems/unknown-answer")),
    ):
        async with laptop.http.post(f"{path}/{forged}/{verb}", json=given) as answer:
            assert (answer.status, (await answer.json())["type"]) == expected

    async with await browser.new_context(viewport={"width": 1280, "height": 860}) as context:
        page = await context.new_page()
        await page.goto(link)
        shown = page.get_by_label("Approval")
        await shown.get_by_text("there is no champion").wait_for()
        await picture(page, "approval-link", PICTURES)
        assert (await laptop.get(f"/api/approvals/{name}"))[1]["is_open"], "it was only opened"
        answer = await answered(await act(page, "Approve", "good on all labels"))
        assert (answer["answer"]["verb"], answer["answer"]["by"]) == ("approve", "ada")
    await laptop.until(f"/api/runs/{run}", lambda found: found["state"] == "succeeded")
    async with laptop.http.post(f"{path}/{token}/reject", json=given) as second:
        assert (second.status, (await second.json())["type"]) == (409, "/problems/approval-over")

    status = run_status(run, "succeeded").model_copy(update={"pipeline": ASKED_BY_LINK})
    promoted = Notification(id="n", kind="succeeded", at=datetime.now(UTC), status=status)
    drawn = notification_links(settings, promoted)["picture_url"]
    async with laptop.http.get(drawn) as shown_picture:
        assert shown_picture.content_type == "image/svg+xml"
        assert "approved by ada: good on all labels" in await shown_picture.text()
    async with laptop.http.get(f"{drawn}x") as refused:
        assert (refused.status, (await refused.json())["type"]) == (401, "/problems/bad-link")
