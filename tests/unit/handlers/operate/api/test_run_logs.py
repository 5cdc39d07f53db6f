from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.operate.api.requests import Answer
from handlers.operate.api.run_logs import RunLogs, get_logs, parse_utilisation
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunRecord
from tests.fakes.azure_ml import World, a_job, make_world, refusal
from tests.fakes.durable_client import STARTED_AT, TaskHub
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.orchestrations.examples import DATASET, run_status

RUN = f"digits-{DATASET.version}-1"
CHECK = f"{RUN}_data-check"


def logs(world: World, **query: str) -> Answer:
    return asyncio.run(ask(get_logs, world.clients, TaskHub(), query=query, run=RUN))


def shown(world: World, **query: str) -> RunLogs:
    answer = logs(world, **query)
    assert answer.status == 200, answer.document
    return RunLogs.model_validate(answer.document)


def keep(world: World, state: RunState, job: str | None) -> None:
    record = RunRecord(status=run_status(RUN, state, STARTED_AT, job=job), started_at=STARTED_AT)
    world.records.blobs[f"runs/{RUN}/record.json"] = json.dumps(record.to_dict()).encode()


def job(world: World, name: str, status: str, *files: str, root: str | None = None) -> None:
    world.workspace.jobs.histories[name] = SimpleNamespace(
        run_id=name, root_run_id=root or name, status=status, log_files=dict.fromkeys(files, "")
    )


def test_it_is_said_why_there_is_no_log() -> None:
    world = make_world()
    check_problem(logs(world), 404, "unknown-run", RUN)
    keep(world, "provisioning", None)
    assert shown(world).note == f"run {RUN} has no job yet: it is provisioning"
    assert not shown(world).has_ended
    keep(world, "superseded", None)
    assert shown(world).note == f"run {RUN} has no job: it is superseded"
    assert shown(world).has_ended
    keep(world, "queued", RUN)
    job(world, RUN, "Queued")
    waiting = shown(world, file="user_logs/std_log.txt")
    assert (waiting.job, waiting.state, waiting.has_ended) == (RUN, "queued", False)
    assert waiting.note == "its program has printed nothing yet"
    job(world, RUN, "Canceled", "system_logs/lifecycler.log")
    assert shown(world).note == "its program has printed nothing"
    check_problem(logs(world, file="x"), 404, "unknown-log", "it has: system_logs/lifecycler.log")
    world.workspace.jobs.histories.clear()
    world.workspace.jobs.run_error = refusal(404, "it was deleted")
    assert shown(world).note == f"Azure ML has no job {RUN}"
    world.workspace.jobs.run_error = refusal(503, "the history is down")
    check_problem(logs(world), 502, "azure-ml", "could not be asked")


def test_a_job_that_is_asked_for_is_one_of_the_run() -> None:
    world = make_world()
    keep(world, "provisioning", None)
    job(world, CHECK, "Completed")
    assert (shown(world, job=CHECK).job, shown(world, job=CHECK).has_ended) == (CHECK, True)
    job(world, "guid-of-a-step", "Queued", root=RUN)
    assert shown(world, job="guid-of-a-step").job == "guid-of-a-step"
    job(world, "signs-1", "Completed")
    check_problem(logs(world, job="signs-1"), 404, "unknown-job", f"{RUN} has no job signs-1")
    check_problem(logs(world, job="' or 1"), 400, "invalid-request")


@pytest.mark.parametrize(
    ("statuses", "chosen"),
    [
        (("Failed", "Running", "Running"), 1),
        (("Completed", "Failed", "Canceled"), 1),
        (("Queued",), 0),
    ],
)
def test_of_a_sweep_it_is_the_log_of_the_trial_that_matters(
    statuses: tuple[str, ...], chosen: int
) -> None:
    world = make_world()
    keep(world, "running", RUN)
    job(world, RUN, "Running", "azureml-logs/hyperdrive.txt")
    trials = {f"{RUN}_{number}": status for number, status in enumerate(statuses)}
    world.workspace.jobs.children[RUN] = [a_job(*trial) for trial in trials.items()]
    for name, status in trials.items():
        job(world, name, status, "user_logs/std_log.txt", root=RUN)
    # The fake's log has no address.
    check_problem(logs(world), 502, "azure-ml", f"std_log.txt of job {RUN}_{chosen} cannot be read")


def test_the_last_minute_of_the_utilisation_counts() -> None:
    def metric(name: str, **minutes: float | None) -> dict[str, Any]:
        data = [{"timeStamp": at, "average": value} for at, value in minutes.items()]
        return {"name": {"value": name}, "timeseries": [{"data": data}] if data else []}

    first, last, empty = (f"2026-11-28T10:0{minute}:00Z" for minute in (1, 2, 3))
    cpu = metric("CpuUtilizationPercentage", **{first: 20, last: 71.26, empty: None})
    none = metric("GpuUtilizationPercentage")
    found = parse_utilisation({"value": [cpu, none]})
    assert found is not None
    assert found.model_dump(mode="json") == {"at": last, "percent": {"CPU": 71.3}}
    assert parse_utilisation({"value": [none]}) is None
