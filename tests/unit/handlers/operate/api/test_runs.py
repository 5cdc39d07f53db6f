from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest

from handlers.operate.api import runs
from handlers.operate.api.documents import RunList, RunOrLanding
from handlers.platform import tags
from handlers.platform.run_index import index_run
from handlers.platform.run_records import merge
from orchestrations.contracts.base import Failure
from orchestrations.contracts.checked import Checked
from orchestrations.contracts.landing import LandingResult, LandingStatus
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import RunStatus
from orchestrations.contracts.training import RunRecord, RunStep
from tests.fakes.azure_ml import World, make_world
from tests.fakes.durable_client import STARTED_AT, TaskHub
from tests.unit.handlers.asking import ask
from tests.unit.orchestrations.examples import DATASET, run_status

RUN = f"digits-{DATASET.version}-1"
SECOND = f"digits-{DATASET.version}-2"


def status(state: RunState, seconds: float = 0, run: str = RUN, **more: Any) -> RunStatus:
    return run_status(run, state, STARTED_AT + timedelta(seconds=seconds), **more)


def steps(*states: tuple[RunState, float]) -> tuple[RunStep, ...]:
    return tuple(
        RunStep(state=state, began_at=STARTED_AT + timedelta(seconds=seconds))
        for state, seconds in states
    )


def record(
    *states: tuple[RunState, float], run: str = RUN, results: str | None = None, **more: Any
) -> RunRecord:
    made = steps(*states)
    told = status(*states[-1], run=run, results=results)
    return RunRecord(status=told, started_at=made[0].began_at, steps=made, **more)


async def get(world: World, hub: TaskHub, run: str = RUN) -> tuple[int, dict[str, Any]]:
    answer = await ask(runs.get_run, world.clients, hub, run=run)
    if answer.status == 200:
        RunOrLanding.model_validate(answer.document)
    return answer.status, dict(answer.document)


def keep(world: World, made: RunRecord) -> None:
    world.records.blobs[f"runs/{made.status.id}/record.json"] = json.dumps(made.to_dict()).encode()


def listed(world: World, **parameters: str) -> list[str]:
    answer = asyncio.run(ask(runs.list_runs, world.clients, query=parameters))
    assert answer.status == 200, answer.document
    return [run["id"] for run in RunList.model_validate(answer.document).model_dump()["runs"]]


def test_the_report_of_a_data_check_is_read_as_text(world: World) -> None:
    def report() -> tuple[int, Any]:
        answer = asyncio.run(ask(runs.get_report, world.clients, run=RUN))
        return answer.status, answer.document

    assert report()[0] == 404
    name = f"landfall/digits/{RUN}_data-check/results/report.html"
    check = Checked(passed=False, message="failed", report=f"azureml-blobstore/{name}")
    keep(world, record(("registering", 0)))
    assert "was not checked with a report" in report()[1]["detail"]
    keep(world, record(("registering", 0), ("held", 5), data_check=check))
    assert "is not in the storage account" in report()[1]["detail"]
    world.results.upload_blob(name, "<!doctype html><p>3 blank</p>")
    assert report() == (200, {"html": "<!doctype html><p>3 blank</p>"})
    world.results.upload_blob(name, b"x" * (runs.REPORT_LIMIT_BYTES + 1), overwrite=True)
    status, problem = report()
    assert (status, problem["type"]) == (409, "/problems/report-too-large")


def test_runs_are_found_by_their_data_and_by_the_model_that_they_registered(world: World) -> None:
    for made in (
        record(("registering", 0), ("retrying", 5)),
        record(("registering", 60), ("succeeded", 90), run=SECOND),
    ):
        keep(world, made)
        index_run(world.clients.records, made)  # pyright: ignore[reportArgumentType] - the fake
    assert listed(world, data=DATASET.version) == [SECOND, RUN]
    assert listed(world, data=DATASET.version, state="retrying") == [RUN]
    assert listed(world, data=DATASET.version, state="retrying,succeeded") == [SECOND, RUN]
    assert listed(world, data=DATASET.version, pipeline="signs") == []
    assert listed(world, data="0" * 16) == []
    after = (STARTED_AT + timedelta(seconds=1)).isoformat()
    assert listed(world, data=DATASET.version, **{"from": after}) == [SECOND]
    assert listed(world, data=DATASET.version, to=after) == [RUN]
    query = {"data": DATASET.version, "limit": "1"}
    page = asyncio.run(ask(runs.list_runs, world.clients, query=query))
    assert page.document["next"] is not None
    following = dict(parse_qsl(page.document["next"].partition("?")[2]))
    assert listed(world, **following) == [RUN]
    model: Any = SimpleNamespace(name="digits", version="3", tags={tags.RUN: SECOND})
    world.workspace.models.store["digits", "3"] = model
    assert listed(world, model="digits:3") == listed(world, model="digits:3", data=DATASET.version)
    assert listed(world, model="digits:3") == [SECOND]
    assert listed(world, model="digits:4") == []
    assert listed(world, model="digits:3", data="0" * 16) == []


@pytest.mark.parametrize(("name", "value"), [("data", "HEAD"), ("model", "digits")])
def test_a_filter_that_names_nothing_is_refused(name: str, value: str) -> None:
    answer = asyncio.run(ask(runs.list_runs, make_world().clients, query={name: value}))
    assert (answer.status, answer.document["where"]) == (400, name)


def test_generations_add_to_one_timeline_and_repeat_nothing() -> None:
    first = record(("registering", 0), ("queued", 5), blobs=3)
    second = record(("queued", 5), ("running", 9))
    merged = merge(merge(None, first), second)
    assert merged.steps == steps(("registering", 0), ("queued", 5), ("running", 9))
    assert merged.blobs == 3
    assert merge(merged, first) == merge(merged, second) == merged
    ending = merge(record(("queued", 5), ("ending", 7)), record(("ending", 90), ("failed", 95)))
    assert ending.steps == steps(("queued", 5), ("ending", 7), ("failed", 95))


def test_an_end_is_never_taken_back() -> None:
    ended = record(("running", 9), ("succeeded", 20), job_url="https://ml/1")
    late = record(("running", 9), ("running", 30), job_url="https://ml/2")
    assert merge(ended, late).status.state == "succeeded"
    assert merge(ended, late).job_url == "https://ml/1"


def test_an_end_counts_though_its_time_has_whole_seconds() -> None:
    """As that of an instance that was terminated within a second of its last change."""
    known = record(("queued", 5.2), ("running", 9.7))
    ended = record(("failed", 9), results="runs/r/results.json")
    for merged in (merge(known, ended), merge(ended, known), merge(merge(known, ended), known)):
        assert merged.status == ended.status
        assert [step.state for step in merged.steps] == ["queued", "running", "failed"]


def test_of_states_of_one_instant_the_later_one_of_the_machine_counts() -> None:
    earlier = record(("queued", 5), ("judging", 9))
    later = record(("queued", 5), ("judging", 9), ("publishing", 9))
    for merged in (merge(earlier, later), merge(later, earlier)):
        assert merged.status.state == "publishing"
        assert [step.state for step in merged.steps] == ["queued", "judging", "publishing"]


async def test_a_run_is_shown_with_its_timeline_and_metrics_when_its_instance_is_gone(
    world: World,
) -> None:
    results = f"runs/{RUN}/results.json"
    keep(world, record(("registering", 0), ("queued", 5), ("running", 9), results=results))
    keep(world, record(("registering", 60), run=SECOND))
    metrics = {"accuracy": 0.9, "champion_accuracy": 0.8, "loss": 0.1}
    world.records.blobs[results] = json.dumps({"metrics": metrics, "error": None}).encode()
    code, shown = await get(world, TaskHub())
    assert (code, shown["state"]) == (200, "running")
    spans = [(each["state"], each["ended_at"]) for each in shown["timeline"]]
    assert spans == [
        ("registering", "2026-11-21T10:00:05Z"),
        ("queued", "2026-11-21T10:00:09Z"),
        ("running", None),
    ]
    assert shown["all_metrics"] == metrics
    assert shown["links"] == {
        "previous_attempt": None,
        "next_attempt": SECOND,
        "redriven_as": None,
        "redriven_from": None,
        "superseded_by": None,
    }


async def test_the_state_is_from_the_instance_and_the_timeline_from_the_record() -> None:
    world, hub = make_world(), TaskHub()
    keep(world, record(("registering", 0), ("queued", 5)))
    failure = Failure(type="QuotaExceeded", message="none left", permanent=True)
    ended = status("rejected", 30, error=failure)
    hub.add(RUN, "retraining", "Completed", custom_status=ended.to_dict())
    _, shown = await get(world, hub)
    assert shown["state"] == "rejected"
    assert shown["remedy"] == "Ask for quota, or add a compute option; redrive."
    assert [each["state"] for each in shown["timeline"]] == ["registering", "queued", "rejected"]


async def test_an_instance_of_another_release_is_404_and_not_a_fault() -> None:
    hub = TaskHub()
    hub.add("digits-ee-1", "retraining", custom_status={"schema_version": 99})
    hub.add("request-digits-ff", "landing", custom_status={"schema_version": 99})
    for instance in ("digits-ee-1", "request-digits-ff"):
        assert (await get(make_world(), hub, instance))[0] == 404


async def test_an_instance_that_was_terminated_counts_as_failed() -> None:
    hub = TaskHub()
    hub.add(
        RUN,
        "retraining",
        "Terminated",
        custom_status=status("queued").to_dict(),
        output="why",
        created=STARTED_AT + timedelta(minutes=1),
    )
    _, shown = await get(make_world(), hub)
    assert shown["state"] == "failed"
    assert "terminated: why" in shown["error"]["message"]


@pytest.mark.parametrize("instance", ["digits-zz-1", "../../admin", "a?b", "", "a" * 256])
async def test_an_unknown_run_is_404(instance: str) -> None:
    code, problem = await get(make_world(), TaskHub(), instance)
    assert (code, problem["type"]) == (404, "/problems/unknown-run")


async def test_a_request_is_answered_by_its_landing() -> None:
    hub = TaskHub()
    training = LandingStatus(phase="training", pipeline="digits", opened_at=STARTED_AT, run=RUN)
    hub.add("request-digits-1", "landing", custom_status=training.to_dict())
    _, under_way = await get(make_world(), hub, "request-digits-1")
    assert (under_way["phase"], under_way["outcome"], under_way["run"]) == ("training", None, RUN)

    result = LandingResult(
        pipeline="digits", outcome="duplicate", run=RUN, dataset_version=DATASET.version
    )
    # Some hosts return the output as JSON in a string.
    hub.add(
        "request-digits-2",
        "landing",
        "Completed",
        custom_status=training.to_dict(),
        output=json.dumps(result.to_dict()),
    )
    _, ended = await get(make_world(), hub, "request-digits-2")
    assert (ended["phase"], ended["outcome"]) == ("ended", "duplicate")
    assert ended["dataset_version"] == DATASET.version

    hub.add("request-digits-3", "landing", "Pending")
    _, waiting = await get(make_world(), hub, "request-digits-3")
    assert (waiting["phase"], waiting["run"]) == ("settling", None)


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        ({"pipelin": "digits"}, "pipelin", "parameters are: pipeline, state, from, to"),
        ({"state": "flying"}, "state", "'flying'"),
        ({"pipeline": "digits&taskHub=other"}, "pipeline", "pattern"),
        ({"from": "yesterday"}, "from", "date"),
        ({"to": "2026-11-21T10:00:00"}, "to", "timezone"),
        ({"limit": "101"}, "limit", "100"),
        ({"after": "../x"}, "after", "pattern"),
    ],
)
async def test_a_wrong_parameter_is_400_and_named(
    given: dict[str, str], where: str, words: str
) -> None:
    answer = await ask(runs.list_runs, make_world().clients, query={"code": "a key", **given})
    assert answer.status == 400
    assert answer.document["where"] == where
    assert words in answer.document["detail"]
