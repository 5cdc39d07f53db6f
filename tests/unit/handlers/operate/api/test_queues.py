from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import yaml

from handlers.operate.api.queues import QueueList, list_queues
from handlers.training.admission import RECORD
from tests.fakes.azure_ml import make_world
from tests.unit.handlers.asking import ask
from tests.unit.orchestrations.training.admission_examples import (
    START,
    an_admission,
    queues,
    waiting,
)

QUEUES = queues(
    {"name": "vision", "nominal_quota": 2, "weight": 2, "budget": {"amount": 10, "days": 7}},
    {"name": "speech", "borrowing_limit": 1},
)


async def test_without_a_file_there_is_no_queue(tmp_path: Path) -> None:
    world = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    answer = await ask(list_queues, world.clients, now=START)
    assert answer.document == {
        "currency": None,
        "prices_as_of": None,
        "flavors": [],
        "queues": [],
        "costs": [],
    }
    assert (await ask(list_queues, world.clients, query={"queue": "vision"})).status == 400


async def test_queues_show_holding_and_waiting_runs_and_costs(tmp_path: Path) -> None:
    (tmp_path / "queues.yml").write_text(yaml.safe_dump(QUEUES.model_dump(mode="json")))
    world = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    document = an_admission(
        QUEUES,
        waiting("a", "vision", 3),
        waiting("b", "speech", 1),
        waiting("c", "speech", 1, since=START + timedelta(seconds=1)),
    )
    world.records.blobs[RECORD] = json.dumps(document.to_dict()).encode()
    answer = await ask(list_queues, world.clients, now=START)
    assert answer.status == 200
    found = QueueList.model_validate(answer.document)
    vision, speech = found.queues
    assert (found.currency, found.flavors[0].nodes_free) == ("USD", 0)
    assert [(run.run, run.nodes) for run in vision.holding] == [("a", 3)]
    assert vision.quotas[0].nodes_held == 3
    assert vision.budget is not None
    assert (vision.budget.spent, vision.budget.reserved) == (0, 6)
    assert [run.run for run in speech.holding] == ["b"]
    (third,) = speech.waiting
    assert third.run == "c"
    assert third.sentence == (
        "waits in queue speech since 2026-11-23 00:00:01 UTC for gpu: 1 node, the queue holds "
        "1 of the 1 that it may hold at most"
    )
    assert list(world.records.blobs) == [RECORD], "reading it decides nothing"
    assert world.records.blobs[RECORD] == json.dumps(document.to_dict()).encode()
