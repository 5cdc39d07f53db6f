from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from handlers.operate.api import dead_letters
from handlers.operate.api.requests import Answer
from handlers.operate.redrive import RedriveOrder
from handlers.operate.redrive_changes import RedriveRefused, RefusalKind
from handlers.platform.clients import Clients
from handlers.training.retries import Changes, LimitChanges
from orchestrations.configuration.pipeline import ComputeOption
from tests.fakes.azure_ml import make_world
from tests.fakes.durable_client import STARTED_AT
from tests.unit.handlers.asking import ask, check_problem

NOW = STARTED_AT + timedelta(hours=1)


class Redriver:
    def __init__(self, *found: str) -> None:
        self.found = list(found)
        self.orders: list[RedriveOrder] = []
        self.refusal: RedriveRefused | None = None

    def redrive(self, _: Clients, order: RedriveOrder) -> list[str]:
        self.orders.append(order)
        if self.refusal is not None:
            raise self.refusal
        return self.found


@pytest.fixture
def redriver(monkeypatch: pytest.MonkeyPatch) -> Redriver:
    redriver = Redriver("digits-aa-3")
    monkeypatch.setattr(dead_letters, "redrive_letters", redriver.redrive)
    return redriver


async def redrive(body: bytes = b"") -> Answer:
    return await ask(dead_letters.redrive, make_world().clients, body=body, now=NOW)


async def test_redrive_returns_the_started_ids(redriver: Redriver) -> None:
    answer = await redrive(b'{"run": "digits-aa-2"}')
    assert (answer.status, answer.document) == (200, {"redriven": ["digits-aa-3"]})
    await redrive(b'{"maximum": 100}')
    asked = [(each.run, each.maximum, each.changes) for each in redriver.orders]
    assert asked == [("digits-aa-2", 10, Changes()), (None, 100, Changes())]

    redriver.found = []
    check_problem(await redrive(b'{"run": "digits-zz-1"}'), 404, "unknown-run", "digits-zz-1")
    assert (await redrive()).document == {"redriven": []}
    for body in (b'{"maximum": 0}', b'{"maximum": 101}', b'{"maximum": "5"}', b'{"all": true}'):
        check_problem(await redrive(body), 400, "invalid-request")


async def test_redrive_passes_changes_on(redriver: Redriver) -> None:
    compute = {"cluster": "large", "size": "Standard_D8", "nodes": 2}
    changes = {
        "compute": compute,
        "limits": {"running_seconds": 60},
        "attempts": 2,
        "job": "deployed",
        "without_files": ["b", "a", "b"],
    }
    body = {"run": "digits-aa-2", "changes": changes, "by": "ada", "reason": "too small"}
    assert (await redrive(json.dumps(body).encode())).status == 200
    (order,) = redriver.orders
    assert (order.by, order.reason, order.at) == ("ada", "too small", NOW)
    assert order.changes.compute == ComputeOption.model_validate(compute)
    assert order.changes.limits == LimitChanges(running_seconds=60)
    assert (order.changes.attempts, order.changes.job) == (2, "deployed")
    assert order.changes.without_files == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "where", "word"),
    [
        ({"compute": {"cluster": "c!", "size": "s", "nodes": 1}}, "changes.compute.cluster", "c"),
        ({"compute": {"cluster": "large", "size": "s"}}, "changes.compute.nodes", "priority"),
        ({"limits": {"running_second": 1}}, "changes.limits.running_second", "running_seconds"),
        ({"limits": {"running_seconds": 0}}, "changes.limits.running_seconds", "greater than 0"),
        ({"attempts": 21}, "changes.attempts", "20"),
        ({"job": "today"}, "changes.job", "deployed"),
        ({"without_files": []}, "changes.without_files", "at least 1"),
        ({"without_files": [1]}, "changes.without_files.0", "string"),
        ({"node": 1}, "changes.node", "without_files"),
    ],
)
async def test_a_wrong_change_is_named_with_what_is_right(
    redriver: Redriver, changes: dict[str, Any], where: str, word: str
) -> None:
    answer = await redrive(json.dumps({"run": "digits-aa-2", "changes": changes}).encode())
    check_problem(answer, 400, "invalid-request", word)
    assert answer.document["where"] == where
    assert redriver.orders == []


async def test_changes_without_a_run_are_refused(redriver: Redriver) -> None:
    answer = await redrive(b'{"changes": {"attempts": 1}}')
    check_problem(answer, 400, "invalid-request", "name it")
    assert answer.document["where"] == "run"
    assert redriver.orders == []


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid-request", 400),
        ("already-redriven", 409),
        ("content-claimed", 409),
        ("content-forgotten", 409),
    ],
)
async def test_a_refused_redrive_is_a_problem(
    redriver: Redriver, kind: RefusalKind, status: int
) -> None:
    redriver.refusal = RedriveRefused("because", kind=kind, where="changes")
    answer = await redrive(b'{"run": "digits-aa-2", "changes": {"attempts": 1}}')
    check_problem(answer, status, kind, "because")
    assert answer.document["where"] == "changes"
