"""Creates, changes and triggers the schedules of azureml-examples, as `schedule.sh` does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path("cli", "schedules")
_SCHEDULE: Final = re.compile(r"^\$schema:.*/schedule\.schema\.json", re.MULTILINE)


def schedule_files(sources: Path) -> list[Path]:
    """Every file of a schedule under `cli/schedules`."""
    found = sorted((sources / FOLDER).rglob("*.y*ml"))
    return [each for each in found if _SCHEDULE.search(each.read_text())]


def trigger(ml: Any, file: Path) -> str:
    """Create, trigger and delete a schedule; return the name of the job that it started."""
    # The CLI calls `load_schedule`, too; the import requests the cloud's metadata.
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
