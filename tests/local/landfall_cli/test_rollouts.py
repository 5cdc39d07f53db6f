"""landfall rollouts: the output for the API's documents, and the requests of decisions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from handlers.operate.api.rollouts import RolloutList, RolloutSummary
from landfall_cli.__main__ import app
from orchestrations.contracts.rollouts import Unknown
from orchestrations.contracts.runs import Model
from tests.local.http_server import JsonHandler, serving

ROLLOUT = RolloutSummary(
    id="rollout-digits-live-2",
    pipeline="digits-live",
    run="digits-live-aa-1",
    model=Model(name="digits-live", version="2", path="azureml://…"),
    endpoint="digits-live",
    deployment="model-2",
    state="baking",
    since=datetime(2026, 11, 22, tzinfo=UTC),
    step=0,
    steps=3,
    traffic={"model-1": 100},
    mirror={"model-2": 50},
    requests=52,
    error_rate=0.365,
    latency_p95_ms=12.4,
    reason="the step is baking",
    broken=False,
    created_at=datetime(2026, 11, 22, tzinfo=UTC),
)
LIST = RolloutList(
    rollouts=[ROLLOUT], next="/api/rollouts?limit=1&after=8236_rollout-digits-live-2"
)
ANSWERS = {
    "/api/rollouts": LIST.model_dump(mode="json"),
    f"/api/rollouts/{ROLLOUT.id}": ROLLOUT.model_dump(mode="json", exclude={"created_at"}),
}


class Handler(JsonHandler, BaseHTTPRequestHandler):
    posted: list[tuple[str, Any]]

    def do_GET(self) -> None:
        self.answer(200, ANSWERS[self.path.partition("?")[0]])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.posted.append((self.path, body))
        self.answer(202, {"id": ROLLOUT.id, "status_url": f"/api/rollouts/{ROLLOUT.id}"})


@pytest.fixture
def url() -> Iterator[str]:
    Handler.posted = []
    with serving(Handler) as found:
        yield found


def landfall(url: str, *arguments: str) -> Result:
    given = ["--url", url, "--key", "k", "rollouts", *arguments]
    return CliRunner().invoke(app, given, env={"COLUMNS": "200"})


def test_a_list_has_state_traffic_and_reason_of_each(url: str) -> None:
    result = landfall(url, "list", "--limit", "1")
    assert result.exit_code == 0, result.output
    heading, row, more = result.output.splitlines()
    assert heading.split() == ["STATE", "ROLLOUT", "TRAFFIC", "BEGAN", "WHY"]
    assert row.split()[:4] == ["baking", ROLLOUT.id, "model-1", "100%"]
    assert row.rstrip().endswith("the step is baking")
    assert more == "There are more: add --after 8236_rollout-digits-live-2"


def test_one_shows_its_step_and_what_the_metrics_say(url: str) -> None:
    result = landfall(url, "get", ROLLOUT.id)
    assert result.exit_code == 0, result.output
    facts = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert facts["step"].strip() == "1 of 3"
    assert facts["mirror"].strip() == "model-2 50%"
    assert facts["failed"].strip() == "36.5%"
    assert facts["requests"].strip() == "52"
    assert facts["p95"].split() == ["latency", "12", "ms"]


def test_a_decision_is_sent_with_who_and_why(url: str) -> None:
    refused = landfall(url, "promote", ROLLOUT.id, "--reason", "at night")
    assert (refused.exit_code, Handler.posted) == (2, []), "nobody was asked, and no --yes"
    result = landfall(url, "promote", ROLLOUT.id, "--reason", "at night", "--by", "ada", "--yes")
    assert result.exit_code == 0, result.output
    assert Handler.posted == [
        (f"/api/rollouts/{ROLLOUT.id}/promote", {"reason": "at night", "by": "ada"})
    ]


def test_what_a_rollout_cannot_know_is_its_reason(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Unknown(since=datetime(2026, 11, 22, tzinfo=UTC), what="the metrics are unreachable")
    held = ROLLOUT.model_copy(update={"unknown": unknown}).model_dump(mode="json")
    monkeypatch.setitem(ANSWERS, f"/api/rollouts/{ROLLOUT.id}", held)
    result = landfall(url, "get", ROLLOUT.id)
    assert "waits, because it cannot know: the metrics are unreachable" in result.output
