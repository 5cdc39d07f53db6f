"""The HTTP API over HTTP: every answer is what the OpenAPI document says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from handlers.api.openapi import describe_api
from landfall_cli.__main__ import app
from tests.local.operators.conftest import WAITING, Laptop

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


def check(document: Any, path: str, method: str = "get") -> None:
    """Validate an answer by the schema of its route."""
    described = describe_api()
    responses = described["paths"][path][method]["responses"]
    (success,) = (each for code, each in responses.items() if code in ("200", "202"))
    schema = dict(success["content"]["application/json"]["schema"])
    jsonschema.validate(document, schema | {"components": described["components"]})


async def command(laptop: Laptop, *arguments: str) -> Result:
    """Run the command line in a thread: the app answers from this one's loop."""
    given = ["--url", laptop.url, "--key", laptop.key, "--json", *arguments]
    return await asyncio.to_thread(CliRunner().invoke, app, given)


async def test_what_is_read_is_as_described_and_304_while_nothing_changes(laptop: Laptop) -> None:
    runs = (await laptop.get("/api/runs"))[1]["runs"]
    letter = (await laptop.dead_letters(2))[0]
    asked = {
        "/api/runs": "/api/runs?state=succeeded&limit=1",
        "/api/runs/{id}": f"/api/runs/{runs[0]['id']}",
        "/api/pipelines": "/api/pipelines",
        "/api/pipelines/{name}": "/api/pipelines/batches",
        "/api/dead-letters": "/api/dead-letters",
        "/api/dead-letters/{id}": f"/api/dead-letters/{letter['id']}",
        "/api/explain": f"/api/explain?blob=landing/{WAITING}/1",
        "/api/actions": "/api/actions",
    }
    for path, url in asked.items():
        status, document, headers = await laptop.get(url)
        assert status == 200, document
        check(document, path)
        if path != "/api/explain":
            again = await laptop.get(url, **{"if-none-match": headers["ETag"]})
            assert again[:2] == (304, None), path


async def test_runs_are_filtered_and_paged_on_the_server(laptop: Laptop) -> None:
    _, first, _ = await laptop.get("/api/runs?state=succeeded,retrying&limit=2")
    _, second, _ = await laptop.get(first["next"])
    found = [(run["pipeline"], run["state"]) for run in first["runs"] + second["runs"]]
    assert sorted(found) == [
        ("batches", "succeeded"),
        ("batches", "succeeded"),
        ("hopeless", "retrying"),
    ]
    assert second["next"] is None
    status, problem, headers = await laptop.get("/api/runs?colour=red")
    assert (status, problem["where"]) == (400, "colour")
    assert headers["Content-Type"] == "application/problem+json"


async def test_a_failed_run_shows_its_way_its_error_and_what_to_do(laptop: Laptop) -> None:
    _, listed, _ = await laptop.get("/api/runs?pipeline=hopeless")
    last, first = listed["runs"]
    _, run, _ = await laptop.get(f"/api/runs/{last['id']}")
    states = [step["state"] for step in run["timeline"]]
    assert states[:4] == ["registering", "provisioning", "submitting", "queued"]
    assert states[-1] == run["state"] == "failed"
    assert all(step["ended_at"] for step in run["timeline"][:-1])
    assert run["links"]["previous_attempt"] == first["id"]
    assert run["compute"]["nodes"] == 4
    assert run["error"]["type"] == "JobFailed"
    assert run["remedy"]
    _, before, _ = await laptop.get(f"/api/runs/{first['id']}")
    assert before["links"]["next_attempt"] == last["id"]
    assert before["next_attempt_at"]


async def test_every_pipeline_says_what_it_waits_for(laptop: Laptop) -> None:
    _, listed, _ = await laptop.get("/api/pipelines")
    pipelines = {each["name"]: each for each in listed["pipelines"]}
    assert pipelines[WAITING]["state"] == "settling"
    assert pipelines[WAITING]["sentence"].startswith("waits for the marker _SUCCESS, which has not")
    assert pipelines["no-quota"]["state"] == "needs-a-human"
    assert "QuotaExceeded" in pipelines["no-quota"]["sentence"]
    assert pipelines["batches"]["state"] == "idle"
    assert pipelines["batches"]["last_success"]["model"]["version"] == "2"
    _, detail, _ = await laptop.get("/api/pipelines/batches")
    assert detail["champion"] == {"version": "2"}


async def test_a_wrong_key_is_refused_and_the_page_needs_none(laptop: Laptop) -> None:
    for path, status in (("/api/runs", 401), ("/api/ui", 200), ("/api/ui/app.js", 200)):
        async with laptop.http.get(laptop.url + path) as answer:
            assert answer.status == status, path


async def test_the_command_line_prints_the_documents_and_ends_with_its_codes(
    laptop: Laptop,
) -> None:
    await laptop.dead_letters(2)
    listed = await command(laptop, "runs", "list", "--pipeline", "no-quota")
    assert listed.exit_code == 0, listed.output
    (run,) = json.loads(listed.output)["runs"]
    assert (await command(laptop, "runs", "get", run["id"])).exit_code == 0
    assert (await command(laptop, "runs", "watch", run["id"])).exit_code == 1
    assert (await command(laptop, "runs", "get", "nothing-1")).exit_code == 4
    assert (await command(laptop, "runs", "list", "--state", "flying")).exit_code == 2
    cancel = ("runs", "cancel", run["id"], "--reason", "test", "--yes")
    assert (await command(laptop, *cancel)).exit_code == 5
    explained = await command(laptop, "explain", f"landing/{WAITING}/1")
    assert json.loads(explained.output)["state"] == "pending"
    sick = await command(laptop, "doctor")
    assert sick.exit_code == 1
    verdicts = {each["name"]: each["verdict"] for each in json.loads(sick.output)["checks"]}
    assert verdicts["API"] == verdicts["pipeline batches"] == "good"
    assert verdicts["Service Bus"] == verdicts["pipeline no-quota"] == "bad"
    away = ["--url", "http://127.0.0.1:9", "runs", "list"]
    assert (await asyncio.to_thread(CliRunner().invoke, app, away)).exit_code == 3


async def test_tables_are_for_people(laptop: Laptop) -> None:
    given = ["--url", laptop.url, "--key", laptop.key, "pipelines", "list"]
    shown = await asyncio.to_thread(CliRunner().invoke, app, given)
    assert shown.exit_code == 0
    assert "marked" in shown.output
    assert "settling" in shown.output
