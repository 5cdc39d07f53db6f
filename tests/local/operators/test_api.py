"""The HTTP API over HTTP: every answer conforms to the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import jsonschema
import pytest

from handlers.operate.api.openapi import describe_api
from tests.local.operators.conftest import TALKING_TOO, WAITING, Laptop

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


async def test_what_is_read_is_as_described_and_304_while_nothing_changes(laptop: Laptop) -> None:
    runs = (await laptop.get("/api/runs"))[1]["runs"]
    letter = (await laptop.dead_letters(2))[0]
    (done,) = (await laptop.get("/api/runs?pipeline=batches&limit=1"))[1]["runs"]
    asked = {
        "/api/runs": "/api/runs?state=succeeded&limit=1",
        "/api/runs/{run}": f"/api/runs/{runs[0]['id']}",
        "/api/runs/{run}/logs": f"/api/runs/{done['id']}/logs",
        "/api/pipelines": "/api/pipelines",
        "/api/pipelines/{name}": "/api/pipelines/batches",
        "/api/pipelines/{name}/models": "/api/pipelines/batches/models?limit=1",
        "/api/pipelines/{name}/models/{version}": "/api/pipelines/batches/models/2",
        "/api/pipelines/{name}/models/{version}/card": "/api/pipelines/batches/models/2/card",
        "/api/pipelines/{name}/models/{version}/blobs": "/api/pipelines/batches/models/2/blobs",
        "/api/dead-letters": "/api/dead-letters",
        "/api/dead-letters/{letter}": f"/api/dead-letters/{letter['id']}",
        "/api/explain": f"/api/explain?blob=landing/{WAITING}/1",
        "/api/approvals": "/api/approvals",
        "/api/rollouts": "/api/rollouts?limit=1",
        "/api/queues": "/api/queues",
        "/api/alarms": "/api/alarms",
        "/api/actions": "/api/actions",
    }
    described = describe_api()
    for path, url in asked.items():
        status, document, headers = await laptop.get(url)
        assert status == 200, document
        success = described["paths"][path]["get"]["responses"]["200"]
        schema = success["content"]["application/json"]["schema"]
        jsonschema.validate(document, schema | {"components": described["components"]})
        again = await laptop.get(url, **{"if-none-match": headers["ETag"]})
        assert again[:2] == (304, None), path


async def test_a_model_leads_to_its_blobs_page_by_page(laptop: Laptop) -> None:
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
    card = await laptop.command("models", "card", "batches", "2")
    for line in (
        "# batches:2",
        f"- dataset version: {detail['dataset_version']}",
        "- compared with: version 1",
        f"- run: {detail['run']}",
        "| accuracy | 0.9 |",
        "Landfall manages no endpoint for it.",
    ):
        assert line in card.output.splitlines(), (line, card.output)
    found: list[str] = []
    url = f"{models}/2/blobs?limit=3"
    while url:
        _, page, _ = await laptop.get(url)
        found += [blob["path"] for blob in page["blobs"]]
        url = page["next"]
    assert found == ["1", "2", "3", "script.json"]
    for url in (f"{models}/7", "/api/pipelines/none/models", f"{models}/7/blobs"):
        assert (await laptop.get(url))[0] == 404


async def test_the_log_of_a_running_job_is_followed_until_its_end(laptop: Laptop) -> None:
    (run,) = (await laptop.get(f"/api/runs?pipeline={TALKING_TOO}"))[1]["runs"]
    path, job = f"/api/runs/{run['id']}/logs", f"job {run['id']}: "
    first = await laptop.until(f"{path}?lines=2", lambda found: found["text"] and found)
    assert (first["state"], first["file"]) == ("running", "user_logs/std_log.txt")
    assert first["utilisation"]["percent"].keys() == {"CPU", "memory"}
    last = steps_of(first["text"])[-1]
    following = asyncio.create_task(laptop.command("logs", run["id"], "-f", "--lines", "5"))
    await laptop.until(path, lambda found: steps_of(found["text"])[-1] > last + 50)
    await laptop.post(f"/api/runs/{run['id']}/cancel", by="ada", reason="seen enough")
    followed = await following
    assert followed.exit_code == 1, followed.output
    head, *lines = followed.output.splitlines()
    assert head.startswith(f"{job}running; user_logs/std_log.txt; CPU ")
    assert r"\x1b[2J" in lines[0], "as it is, and not obeyed"
    steps = steps_of(followed.output)
    assert steps == [*range(steps[0], steps[-1] + 1)], "each line once"
    assert steps[-1] > last + 10
    assert f"{job}cancelled; user_logs/std_log.txt" in lines
    assert lines[-1].startswith(f"run {run['id']} is ")
    unknown = await laptop.command("logs", run["id"], "--file", "user_logs/rank_7.txt")
    assert unknown.exit_code == 4
    assert "it has: user_logs/environment.txt, user_logs/std_log.txt" in unknown.output
    (done, *_) = (await laptop.get("/api/runs?pipeline=batches"))[1]["runs"]
    silent = await laptop.command("logs", done["id"], "-f")
    assert silent.exit_code == 0, silent.output
    assert f"run {done['id']} is succeeded" in silent.output


def steps_of(text: str) -> list[int]:
    return [int(step) for step in re.findall(r"^step (\d+)", text, re.MULTILINE)]


async def test_a_wrong_key_is_refused_and_the_page_needs_none(laptop: Laptop) -> None:
    for path, status in (("/api/runs", 401), ("/api/ui", 200), ("/api/ui/app.js", 200)):
        async with laptop.http.get(laptop.url + path) as answer:
            assert answer.status == status, path


async def test_the_command_line_prints_the_documents_and_ends_with_its_codes(
    laptop: Laptop,
) -> None:
    await laptop.dead_letters(1, "no-quota")
    listed = await laptop.command("--json", "runs", "list", "--pipeline", "no-quota")
    (run, *_) = json.loads(listed.output)["runs"]
    away = replace(laptop, url="http://127.0.0.1:9")
    for asked, code, arguments in (
        (laptop, 0, f"runs get {run['id']}"),
        (laptop, 1, f"runs watch {run['id']}"),
        (laptop, 4, "runs get nothing-1"),
        (laptop, 2, "runs list --state flying"),
        (laptop, 5, f"runs cancel {run['id']} --reason test --yes"),
        (away, 3, "runs list"),
    ):
        done = await asked.command("--json", *arguments.split())
        assert done.exit_code == code, (arguments, done.output)
