"""landfall promote: it follows a promotion to its end, and says how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from handlers.operate.api.promotions import PromotionDetail
from landfall_cli import promote
from landfall_cli.__main__ import app
from orchestrations.contracts.runs import Model
from tests.local.http_server import JsonHandler, serving
from tests.unit.orchestrations.training.test_promotion import STATUS

PATH = "/api/pipelines/digits/models/3/promotions"
BEGUN = PromotionDetail(
    **{name: value for name, value in STATUS if name in PromotionDetail.model_fields},
    id=STATUS.id,
    files=2,
    bytes=3,
    has_ended=False,
    broken=False,
)
THERE = Model(name="digits", version="3", path="azureml://a/workspaces/w/datastores/d/paths/p/")


class Handler(JsonHandler, BaseHTTPRequestHandler):
    follows: list[PromotionDetail]
    posted: list[Any]

    def do_GET(self) -> None:
        if self.path.startswith(PATH):
            shown = self.follows.pop(0).model_dump(mode="json")
            self.answer(200, {"promotions": [shown], "workspaces": ["production"]})
        else:
            digits = {"name": "digits", "model": "digits", "endpoint": None}
            self.answer(200, {"pipelines": [digits]})

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.answer(202, {"id": STATUS.id, "status_url": PATH})


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(promote, "POLL_SECONDS", 0.0)
    Handler.posted = []
    with serving(Handler) as found:
        yield found


def landfall(url: str, model: str, **end: Any) -> Result:
    Handler.follows = [BEGUN, BEGUN.model_copy(update=end)]
    given = ["--url", url, "--key", "k", "promote", model, "--to", "production"]
    options = ["--reason", "it is better", "--by", "ada", "--yes"]
    return CliRunner().invoke(app, [*given, *options], env={"COLUMNS": "200"})


def test_it_is_followed_until_it_is_there(url: str) -> None:
    done = landfall(url, "digits:3", state="promoted", has_ended=True, registered=THERE)
    assert done.exit_code == 0, done.output
    *states, last = done.stdout.splitlines()
    assert [line.split()[-1] for line in states] == ["checking", "promoted"]
    assert last == "digits:3 is in production (files: 2, bytes: 3): w/datastores/d/paths/p/"
    assert Handler.posted == [{"to": "production", "reason": "it is better", "by": "ada"}]


@pytest.mark.parametrize(
    "end", [{"state": "refused", "has_ended": True}, {"state": "copying", "broken": True}]
)
def test_the_exit_code_says_that_it_is_not_there(url: str, end: dict[str, Any]) -> None:
    done = landfall(url, "digits:3", why="other bits", **end)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1].endswith(f"{end['state']}: other bits")


def test_a_version_is_named(url: str) -> None:
    assert landfall(url, "digits").exit_code == 2
    assert Handler.posted == []
