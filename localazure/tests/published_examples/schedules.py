"""The schedules of azureml-examples, each created, changed and triggered once as `schedule.sh`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path("cli", "schedules")
_SCHEDULE: Final = re.compile(r"^\$schema:.*/schedule\.schema\.json", re.MULTILINE)


def schedule_files(sources: Path) -> list[Path]:
    """Every file of a schedule below `cli/schedules`."""
    found = sorted((sources / FOLDER).rglob("*.y*ml"))
    return [each for each in found if _SCHEDULE.search(each.read_text())]


def trigger(ml: Any, file: Path) -> str:
    """The name of the job that a schedule starts when it is triggered; the schedule is deleted."""
    # The CLI calls this; the package asks the cloud for its metadata when it is imported.
    from azure.ai.ml.entities._load_functions import load_schedule  # noqa: PLC0415

    schedule = ml.schedules.begin_create_or_update(load_schedule(file)).result()
    schedule.description = "new description"
    ml.schedules.begin_create_or_update(schedule).result()
    ml.schedules.begin_disable(schedule.name).result()
    ml.schedules.begin_enable(schedule.name).result()
    started = ml.schedules.trigger(schedule.name)
    ml.schedules.begin_disable(schedule.name).result()
    ml.schedules.begin_delete(schedule.name).result()
    return str(started.job_name)
