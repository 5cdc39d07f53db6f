from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.operate.api.run_logs import RunLogs, get_logs, parse_utilisation
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.training import RunRecord, RunStep
from tests.fakes.azure_ml import World, a_job, make_world, refusal
from tests.fakes.durable_client import STARTED_AT, TaskHub
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.orchestrations.examples import DATASET, run_status

RUN = f"digits-{DATASET.version}-1"
CHECK = f"{RUN}_data-check"
Step = tuple[RunState, Any]
"""A state, and what was checked in it."""


def logs(world: World, **query: str) -> Any:
    return asyncio.run(ask(get_logs, world.clients, TaskHub(), query=query, run=RUN))


def shown(world: World, **query: str) -> RunLogs:
    answer = logs(world, **query)
    assert answer.status == 200, answer.document
    return RunLogs.model_validate(answer.document)


def keep(world: World, *steps: Step, job: str | None = None) -> None:
    """Keep the record of a run that went through these states and stages."""
    state, stage = steps[-1]
    record = RunRecord(
        status=run_status(RUN, state, STARTED_AT, job=job, stage=stage),
        started_at=STARTED_AT,
        steps=tuple(
            RunStep(state=state, stage=stage, began_at=STARTED_AT + timedelta(seconds=number))
            for number, (state, stage) in enumerate(steps)
        ),
    )
    world.records.blobs[f"runs/{RUN}/record.json"] = json.dumps(record.to_dict()).encode()


def job(world: World, name: str, status: str, *files: str, root: str | None = None) -> None:
    world.workspace.jobs.histories[name] = SimpleNamespace(
        run_id=name, root_run_id=root or name, status=status, log_files=dict.fromkeys(files, "")
    )


def test_it_is_said_why_there_is_no_log() -> None:
    world = make_world()
    check_problem(logs(world), 404, "unknown-run", RUN)
    keep(world, ("registering", None), ("provisioning", None))
    early = shown(world)
    assert (early.job, early.has_ended, early.jobs) == (None, False, [])
    assert early.note == f"run {RUN} has no job yet: it is provisioning"
    keep(world, ("registering", None), ("superseded", None))
    assert shown(world).note == f"run {RUN} ended without a job"
    assert shown(world).has_ended
    keep(world, ("queued", None), job=RUN)
    job(world, RUN, "Queued")
    waiting = shown(world)
    assert (waiting.job, waiting.state, waiting.has_ended) == (RUN, "queued", False)
    assert waiting.note == f"job {RUN} is queued: its program has no log yet"
    job(world, RUN, "Canceled", "system_logs/lifecycler.log")
    assert shown(world).note == f"job {RUN} is cancelled: its program has no log"
    check_problem(logs(world, file="x"), 404, "unknown-log", "it has: system_logs/lifecycler.log")
    world.workspace.jobs.histories.clear()
    world.workspace.jobs.run_error = refusal(404, "it was deleted")
    assert shown(world).note == f"Azure ML has no job {RUN}"
    world.workspace.jobs.run_error = refusal(503, "the history is down")
    check_problem(logs(world), 502, "azure-ml", "could not be asked")


def test_the_job_is_that_of_the_stage_or_the_one_that_is_asked_for() -> None:
    world = make_world()
    job(world, CHECK, "Completed")
    job(world, RUN, "Queued")
    checked: list[Step] = [("running", "data-check"), ("provisioning", None)]
    keep(world, *checked)
    assert (shown(world).job, shown(world).jobs) == (None, [CHECK])
    assert shown(world, job=CHECK).has_ended
    keep(world, *checked, ("queued", None), job=RUN)
    assert (shown(world).job, shown(world).jobs) == (RUN, [CHECK, RUN])
    assert shown(world, job=CHECK).job == CHECK
    job(world, "other-run-1", "Completed")
    check_problem(logs(world, job="other-run-1"), 404, "unknown-job", f"{CHECK}, {RUN}")
    check_problem(logs(world, job="' or 1"), 400, "invalid-request")
    keep(world, ("running", "data-check"), ("held", "data-check"), job=CHECK)
    assert shown(world).job == CHECK


@pytest.mark.parametrize(
    ("statuses", "chosen"),
    [
        (("Completed", "Failed", "Running", "Running"), 2),
        (("Completed", "Failed", "Canceled"), 1),
        (("Completed", "Queued"), 1),
    ],
)
def test_of_a_sweep_it_is_the_log_of_the_trial_that_matters(
    statuses: tuple[str, ...], chosen: int
) -> None:
    world = make_world()
    keep(world, ("running", None), job=RUN)
    job(world, RUN, "Running", "azureml-logs/hyperdrive.txt")
    trials = {f"{RUN}_{number}": status for number, status in enumerate(statuses)}
    world.workspace.jobs.children[RUN] = [a_job(*trial) for trial in trials.items()]
    for name, status in trials.items():
        job(world, name, status, "user_logs/std_log.txt", root=RUN)
    answer = logs(world)  # the fake's log has no address
    check_problem(answer, 502, "azure-ml", f"user_logs/std_log.txt of job {RUN}_{chosen}")
    check_problem(logs(world, job=f"{RUN}_0"), 502, "azure-ml", f"of job {RUN}_0 cannot be read")
    check_problem(logs(world, file="x"), 404, "unknown-log", f"job {RUN}_{chosen}", "std_log.txt")


def test_the_last_minute_of_the_utilisation_counts() -> None:
    def metric(name: str, *points: tuple[int, float | None]) -> dict[str, Any]:
        data = [
            {"timeStamp": f"2026-11-28T10:0{minute}:00Z", "average": value}
            for minute, value in points
        ]
        return {"name": {"value": name}, "timeseries": [{"data": data}] if data else []}

    cpu = metric("CpuUtilizationPercentage", (1, 20.04), (2, 71.26), (3, None))
    none = metric("GpuUtilizationPercentage")
    found = parse_utilisation({"value": [cpu, none]})
    assert found is not None
    assert found.model_dump(mode="json") == {
        "at": "2026-11-28T10:02:00Z",
        "cpu_percent": 71.3,
        "memory_percent": None,
        "gpu_percent": None,
        "gpu_memory_percent": None,
    }
    assert parse_utilisation({"value": [none]}) is None
