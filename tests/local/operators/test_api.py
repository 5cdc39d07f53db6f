"""The HTTP API over HTTP: every answer is what the OpenAPI document says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from handlers.api.openapi import describe_api
from tests.local.operators.conftest import WAITING, Laptop

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


def check(document: Any, path: str, method: str = "get") -> None:
    """Validate an answer by the schema of its route."""
    described = describe_api()
    responses = described["paths"][path][method]["responses"]
    (success,) = (each for code, each in responses.items() if code in ("200", "202"))
    schema = dict(success["content"]["application/json"]["schema"])
    jsonschema.validate(document, schema | {"components": described["components"]})


async def test_what_is_read_is_as_described_and_304_while_nothing_changes(laptop: Laptop) -> None:
    runs = (await laptop.get("/api/runs"))[1]["runs"]
    letter = (await laptop.dead_letters(2))[0]
    asked = {
        "/api/runs": "/api/runs?state=succeeded&limit=1",
        "/api/runs/{run}": f"/api/runs/{runs[0]['id']}",
        "/api/pipelines": "/api/pipelines",
        "/api/pipelines/{name}": "/api/pipelines/batches",
        "/api/pipelines/{name}/models": "/api/pipelines/batches/models?limit=1",
        "/api/pipelines/{name}/models/{version}": "/api/pipelines/batches/models/2",
        "/api/pipelines/{name}/models/{version}/blobs": "/api/pipelines/batches/models/2/blobs",
        "/api/dead-letters": "/api/dead-letters",
        "/api/dead-letters/{letter}": f"/api/dead-letters/{letter['id']}",
        "/api/explain": f"/api/explain?blob=landing/{WAITING}/1",
        "/api/rollouts": "/api/rollouts?limit=1",
        "/api/queues": "/api/queues",
        "/api/alarms": "/api/alarms",
        "/api/actions": "/api/actions",
    }
    for path, url in asked.items():
        status, document, headers = await laptop.get(url)
        assert status == 200, document
        check(document, path)
        again = await laptop.get(url, **{"if-none-match": headers["ETag"]})
        assert again[:2] == (304, None), path


async def test_runs_are_filtered_and_paged_on_the_server(laptop: Laptop) -> None:
    _, first, _ = await laptop.get("/api/runs?pipeline=batches&state=succeeded,retrying&limit=1")
    _, second, _ = await laptop.get(first["next"])
    found = [(run["pipeline"], run["state"]) for run in first["runs"] + second["runs"]]
    assert found == [("batches", "succeeded")] * 2
    assert first["runs"][0]["created_at"] > second["runs"][0]["created_at"]
    assert second["next"] is None
    _, retrying, _ = await laptop.get("/api/runs?state=retrying")
    assert "hopeless" in {run["pipeline"] for run in retrying["runs"]}
    assert {run["state"] for run in retrying["runs"]} == {"retrying"}
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


async def test_what_a_run_has_cost_is_in_the_run_its_pipeline_and_its_queue(
    laptop: Laptop,
) -> None:
    _, listed, _ = await laptop.get("/api/runs?pipeline=admitted")
    (run,) = listed["runs"]
    cost = run["cost"]
    assert cost["node_seconds"] > 0
    amount = cost["node_seconds"] / 3600 * cost["price_per_node_hour"]
    assert cost["amount"] == pytest.approx(amount)
    _, queues, _ = await laptop.get("/api/queues")
    (month,) = queues["costs"]
    assert (month["pipeline"], month["queue"], month["runs"]) == ("admitted", "open", 1)
    assert month["amount"] == pytest.approx(amount, abs=0.005)
    _, pipeline, _ = await laptop.get("/api/pipelines/admitted")
    assert (pipeline["costs"], pipeline["currency"]) == ([month], "USD")
    for given in (["runs", "get", run["id"]], ["pipelines", "get", "admitted"], ["queue"]):
        shown = await laptop.command(*given)
        assert f"{amount:,.2f} USD" in shown.output, given


async def test_every_pipeline_says_what_it_waits_for(laptop: Laptop) -> None:
    await laptop.dead_letters(1, "no-quota")
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


async def test_a_model_leads_to_its_blobs_and_a_blob_to_its_models(laptop: Laptop) -> None:
    models = "/api/pipelines/batches/models"
    _, first, _ = await laptop.get(f"{models}?limit=1")
    _, second, _ = await laptop.get(first["next"])
    assert [each["version"] for each in first["models"] + second["models"]] == ["2", "1"]
    assert (first["champion"], second["next"]) == ("2", None)
    newest, oldest = first["models"][0], second["models"][0]
    assert (newest["stage"], oldest["stage"]) == ("champion", "former")
    assert newest["metrics"]["accuracy"] == 0.9
    assert newest["compared_with"] == "1"
    _, detail, _ = await laptop.get(f"{models}/2")
    assert detail["dataset"]["blobs"] == 4
    assert detail["rolls_back_to"] == "1"
    found: list[str] = []
    url = f"{models}/2/blobs?limit=3"
    while url:
        _, page, _ = await laptop.get(url)
        found += [blob["path"] for blob in page["blobs"]]
        url = page["next"]
    assert found == ["1", "2", "3", "script.json"]
    for path, versions in (("1", ["2", "1"]), ("3", ["2"])):
        _, explained, _ = await laptop.get(f"/api/explain?blob=landing/batches/{path}")
        assert [each["version"] for each in explained["models"]] == versions
    for url in (f"{models}/7", "/api/pipelines/none/models", f"{models}/7/blobs"):
        assert (await laptop.get(url))[0] == 404


async def test_the_champion_is_rolled_back_and_promoted_by_the_command_line(
    laptop: Laptop,
) -> None:
    why = ("--reason", "wrong at night", "--by", "ada", "--yes")
    back = await laptop.command("--json", "models", "rollback", "batches", *why)
    assert json.loads(back.output) == {"champion": "1", "changed": True}, back.output
    again = await laptop.command("--json", "models", "rollback", "batches", "2", *why)
    assert json.loads(again.output) == {"champion": "1", "changed": False}
    _, detail, _ = await laptop.get("/api/pipelines/batches")
    assert detail["champion"] == {"version": "1"}
    first = await laptop.command("--json", "models", "rollback", "batches", *why)
    assert first.exit_code == 5
    assert (
        await laptop.command("--json", "models", "promote", "batches", "9", *why)
    ).exit_code == 4
    promoted = await laptop.command("--json", "models", "promote", "batches", "2", *why)
    assert json.loads(promoted.output) == {"champion": "2", "changed": True}
    listed = json.loads((await laptop.command("--json", "models", "list", "batches")).output)
    assert [each["stage"] for each in listed["models"]] == ["champion", "former"]
    assert listed["models"][0]["metrics"]["accuracy"] == 0.9
    _, kept, _ = await laptop.get("/api/actions?limit=3")
    assert [(each["action"], each["on"], each["by"]) for each in kept["actions"]] == [
        ("promote", "model batches:2", "ada"),
        ("rollback", "model batches:2", "ada"),
        ("rollback", "model batches:2", "ada"),
    ]


async def test_a_wrong_key_is_refused_and_the_page_needs_none(laptop: Laptop) -> None:
    for path, status in (("/api/runs", 401), ("/api/ui", 200), ("/api/ui/app.js", 200)):
        async with laptop.http.get(laptop.url + path) as answer:
            assert answer.status == status, path


async def test_the_command_line_prints_the_documents_and_ends_with_its_codes(
    laptop: Laptop,
) -> None:
    await laptop.dead_letters(1, "no-quota")
    listed = await laptop.command("--json", "runs", "list", "--pipeline", "no-quota")
    assert listed.exit_code == 0, listed.output
    (run, *_) = json.loads(listed.output)["runs"]
    assert (await laptop.command("--json", "runs", "get", run["id"])).exit_code == 0
    assert (await laptop.command("--json", "runs", "watch", run["id"])).exit_code == 1
    assert (await laptop.command("--json", "runs", "get", "nothing-1")).exit_code == 4
    assert (await laptop.command("--json", "runs", "list", "--state", "flying")).exit_code == 2
    cancel = ("runs", "cancel", run["id"], "--reason", "test", "--yes")
    assert (await laptop.command("--json", *cancel)).exit_code == 5
    explained = await laptop.command("--json", "explain", f"landing/{WAITING}/1")
    assert json.loads(explained.output)["state"] == "pending"
    sick = await laptop.command("--json", "doctor")
    assert sick.exit_code == 1
    verdicts = {each["name"]: each["verdict"] for each in json.loads(sick.output)["checks"]}
    assert verdicts["API"] == verdicts["pipeline batches"] == "good"
    assert verdicts["Service Bus"] == verdicts["pipeline no-quota"] == "bad"
    away = replace(laptop, url="http://127.0.0.1:9")
    assert (await away.command("runs", "list")).exit_code == 3


async def test_tables_are_for_people(laptop: Laptop) -> None:
    shown = await laptop.command("pipelines", "list")
    assert shown.exit_code == 0
    assert "marked" in shown.output
    assert "settling" in shown.output
