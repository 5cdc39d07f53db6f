from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml.entities._load_functions import load_schedule  # the CLI uses it, too
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from harness.local_workspace import Local
from harness.waiting import until

# The published examples have the same form: the pipeline is in a separate file.
SCHEDULE = """
name: nightly
display_name: Every night
trigger:
  type: recurrence
  frequency: day
  interval: 1
  schedule: {hours: [4], minutes: [0, 30]}
  time_zone: "Pacific Standard Time"
create_job: ./pipeline.yml
"""
PIPELINE = """
type: pipeline
experiment_name: nightly
settings: {default_compute: azureml:serverless}
inputs: {at: "${{create_context.trigger_time}}"}
jobs:
  only:
    type: command
    command: echo at ${{inputs.at}}
    environment: azureml:torch:1
    inputs: {at: "${{parent.inputs.at}}"}
"""


def test_the_life_of_a_schedule(local: Local, tmp_path: Path) -> None:
    """It is created from YAML, starts a job, survives a restart, is disabled, then deleted."""
    (tmp_path / "pipeline.yml").write_text(PIPELINE)
    (tmp_path / "schedule.yml").write_text(SCHEDULE)
    schedules = local.ml.schedules
    created: Any = schedules.begin_create_or_update(
        load_schedule(tmp_path / "schedule.yml")
    ).result()
    assert (created.is_enabled, created.provisioning_state) == (True, "Succeeded")
    assert created.trigger.time_zone == "Pacific Standard Time"

    # Without a start time, the first job starts immediately.
    found: list[Any] = until(
        lambda: list(local.ml.jobs.list(scheduled_job_name="nightly")), what="job of the schedule"
    )
    name = found[0].name
    assert found[0].display_name == name
    local.wait_for(name, "Completed")
    assert local.log(f"{name}_only").startswith("at 20")

    local.workspace.end(signal.SIGKILL)
    local.workspace.start()
    with pytest.raises(HttpResponseError, match="disable it"):
        schedules.begin_delete("nightly").result()
    assert [one.name for one in schedules.list()] == ["nightly"]
    assert schedules.begin_disable("nightly").result().is_enabled is False
    assert list(schedules.list()) == []
    assert schedules.begin_enable("nightly").result().is_enabled is True
    triggered = schedules.trigger("nightly", schedule_time="2026-01-01T00:00:00+00:00")
    assert triggered.job_name == "nightly-20260101T000000Z"
    local.ml.jobs.begin_cancel(triggered.job_name).result()

    schedules.begin_disable("nightly").result()
    schedules.begin_delete("nightly").result()
    with pytest.raises(ResourceNotFoundError):
        schedules.get("nightly")
