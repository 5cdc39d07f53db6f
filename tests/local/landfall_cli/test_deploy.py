"""landfall deploy and rollback: what they ask for, until when they follow, what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import landfall_cli.deploy
import landfall_cli.session
from handlers.operate.api.model_documents import ChampionChanged
from landfall_cli.__main__ import app
from tests.local.http_server import JsonHandler, serving
from tests.local.landfall_cli.test_rollouts import ROLLOUT

WHY = ("--reason", "wrong answers", "--by", "ada", "--yes")
ASKED = {"reason": "wrong answers", "by": "ada"}
PIPELINE = {"name": "live", "model": "digits", "endpoint": "digits-live"}
DIGITS = "/api/pipelines/live/models"
UNKNOWN = {"type": "/problems/unknown-rollout", "detail": "there is no rollout"}
AGAIN = ROLLOUT.model_copy(update={"id": "rollout-digits-live-1_1", "rolls_back": "2"})


class Service(JsonHandler, BaseHTTPRequestHandler):
    """Answers the last state of a rollout for ever; those before it once each."""

    posted: list[tuple[str, Any]]
    listed: list[Any]
    states: list[dict[str, Any] | int | None]
    """What the followed rollout becomes; None: it has not begun; 503: an outage."""
    stage: str

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/api/pipelines":
            other = {"name": "other", "model": "shapes", "endpoint": None}
            twins = [{**other, "name": each, "model": "twin"} for each in ("one", "two")]
            self.answer(200, {"pipelines": [other, PIPELINE, *twins]})
        elif path == "/api/rollouts":
            self.answer(200, {"rollouts": self.listed, "next": None})
        elif path.endswith("/models"):
            self.answer(200, {"champion": "2", "models": [{"version": "4", "stage": self.stage}]})
        else:
            changes = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            if changes is None:
                self.answer(404, UNKNOWN)
            elif isinstance(changes, int):
                self.answer(changes, {"type": "/problems/unavailable", "detail": "the hub hangs"})
            else:
                shown = ROLLOUT.model_copy(update=changes).model_dump(mode="json")
                self.answer(200, shown | {"id": path.rpartition("/")[2]})

    def do_POST(self) -> None:
        self.posted.append(
            (self.path, json.loads(self.rfile.read(int(self.headers["content-length"]))))
        )
        if "/models/" not in self.path:
            self.answer(202, {"id": ROLLOUT.id, "status_url": f"/api/rollouts/{ROLLOUT.id}"})
            return
        rollout = None if "/other/" in self.path else AGAIN.id
        done = ChampionChanged(
            champion="1",
            changed=True,
            endpoint="none" if rollout is None else "kept-deployment",
            message="No traffic was moved." if rollout is None else f"see {rollout}.",
            rollout=rollout,
            status_url=None,
        )
        self.answer(200, done.model_dump(mode="json"))


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(landfall_cli.deploy, "POLL_SECONDS", 0)
    monkeypatch.setattr(landfall_cli.session, "RETRY_SECONDS", 0)
    Service.posted, Service.listed, Service.stage = [], [], "champion"
    Service.states = [{"state": "finished", "traffic": None}]
    with serving(Service) as found:
        yield found


def landfall(url: str, *arguments: str) -> Result:
    given = ["--url", url, "--key", "k", *arguments, *WHY]
    return CliRunner().invoke(app, given, env={"COLUMNS": "200"})


def listed(*rollouts: Any) -> list[Any]:
    return [each.model_dump(mode="json") for each in rollouts]


def test_a_deployed_model_is_followed_from_before_its_rollout_begins_until_it_is_live(
    url: str,
) -> None:
    live = {"state": "live", "traffic": {"model-2": 100}}
    Service.states = [None, None, {"state": "deploying", "traffic": None}, {}, live]
    result = landfall(url, "deploy", "digits", "--at-once")
    assert result.exit_code == 0, result.output
    *states, last = result.output.splitlines()
    assert [each.split()[-1] for each in states] == ["deploying", "baking", "live"]
    assert last == "traffic of digits-live: 100 % on version 2, after 0 s"
    asked = {"pipeline": "live", "version": "4", "at_once": True, **ASKED}
    assert Service.posted == [("/api/rollouts", asked)]


def test_an_outage_is_told_once_and_is_no_end(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Service.states = [None, 503, {"state": "deploying"}, 503, 502, {"state": "live"}]
    result = landfall(url, "deploy", "digits")
    assert result.exit_code == 0, result.output
    assert result.stderr == "the hub hangs. The command waits for an answer.\n" * 2
    monkeypatch.setattr(landfall_cli.session, "OUTAGE_SECONDS", 0)
    Service.states = [503]
    result = landfall(url, "deploy", "digits")
    assert result.exit_code == 3, result.output
    nobody = ["--url", "http://127.0.0.1:1", "runs", "watch", "a-run"]
    assert CliRunner().invoke(app, nobody).exit_code == 3


@pytest.mark.parametrize("end", ["rolled_back", "superseded", "failed", "broken"])
def test_a_model_that_does_not_get_the_traffic_is_a_failure_with_its_reason(
    url: str, end: str
) -> None:
    state = {"broken": True} if end == "broken" else {"state": end}
    Service.states = [{}, {**state, "traffic": {"blue": 100}, "reason": "it failed"}]
    result = landfall(url, "deploy", "digits:3")
    assert result.exit_code == 1
    assert result.output.splitlines()[-2:] == [
        "traffic of digits-live: 100 % on deployment blue, after 0 s",
        f"{ROLLOUT.id} is {end}: it failed",
    ]
    assert Service.posted[0][1]["version"] == "3"


@pytest.mark.parametrize(
    ("model", "exits", "said"),
    [
        ("nothing", 4, "no pipeline has a model or an endpoint 'nothing'"),
        ("twin", 2, "the pipelines one, two have 'twin': name one of them"),
        ("digits", 5, "the newest version of digits, 4, is rolled-back: name a version"),
    ],
)
def test_what_is_not_clear_is_not_deployed(url: str, model: str, exits: int, said: str) -> None:
    Service.stage = "rolled-back"
    result = landfall(url, "deploy", model)
    assert (result.exit_code, result.stderr.strip(), Service.posted) == (exits, said, [])


@pytest.mark.parametrize("of", ["digits-live", "digits", "digits:2"])
def test_the_rollout_that_has_the_endpoint_is_rolled_back(url: str, of: str) -> None:
    waiting = ROLLOUT.model_copy(update={"id": "rollout-digits-live-3", "state": "waiting"})
    ended = waiting.model_copy(update={"state": "failed"})
    Service.listed = listed(waiting, ended, ROLLOUT.model_copy(update={"state": "live"}))
    back = {"state": "rolled_back", "traffic": {"model-1-ab12": 100}}
    Service.states = [{"state": "live"}, {"state": "rolling_back"}, back]
    result = landfall(url, "rollback", of)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].startswith("traffic of digits-live: 100 % on version 1,")
    assert Service.posted == [(f"/api/rollouts/{ROLLOUT.id}/rollback", ASKED)]


def test_without_a_rollout_the_version_before_the_champion_serves_again(url: str) -> None:
    Service.states = [None, {"state": "live", "deployment": "model-1"}]
    result = landfall(url, "rollback", "digits-live")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == f"version 1 is in service. see {AGAIN.id}."
    assert result.output.splitlines()[-1].startswith("traffic of digits-live: 100 % on version 1,")
    assert Service.posted == [(f"{DIGITS}/2/rollback", ASKED)]


def test_a_repeated_rollback_does_not_bring_the_bad_version_back(url: str) -> None:
    Service.listed = listed(AGAIN)
    Service.states = [{"state": "live", "deployment": "model-1"}]
    result = landfall(url, "rollback", "digits")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == "version 2 is being rolled back already"
    assert Service.posted == []
    for version in ("1", "2"):  # the version that is to go, not the rollout
        landfall(url, "rollback", f"digits:{version}")
    assert [path for path, _ in Service.posted] == [f"{DIGITS}/{it}/rollback" for it in "12"]


def test_without_an_endpoint_the_champion_alone_is_changed(url: str) -> None:
    result = landfall(url, "rollback", "shapes:2")
    assert result.output.strip() == "version 1 is in service. No traffic was moved."
    assert [path for path, _ in Service.posted] == ["/api/pipelines/other/models/2/rollback"]
