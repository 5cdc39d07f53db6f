"""Copies of this repository's pipelines with changes to the training of the digits."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from harness.child_process import REPOSITORY

PIPELINES = REPOSITORY / "pipelines"
TRAINERS = REPOSITORY / "trainers"
PROGRAM = Path(__file__).with_name("program")
COPIED = ("digits", "digits-live", "smoke", "templates")

Changes = Mapping[str, str]
"""Text of a file → text in its place."""


QUICKER: Changes = {
    "quiet_seconds: 5 ": "quiet_seconds: 1 ",
    "delays_seconds: [5, ": "delays_seconds: [1, ",
}
"""Changes of the pipeline: shorter waits for uploads and before retries."""


def copy_pipelines(folder: Path, *, job: Changes, pipeline: Changes) -> Path:
    """Create a folder of pipelines, with changes of the digits' `job.yml` and `pipeline.yml`."""
    for name in COPIED:
        shutil.copytree(PIPELINES / name, folder / name)
    for name, changes in {"job.yml": job, "pipeline.yml": {**QUICKER, **pipeline}}.items():
        file = folder / "digits" / name
        text = file.read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, f"{name} does not contain {old!r} once"
            text = text.replace(old, new)
        file.write_text(text)
    return folder


def without_torch(pause: Path) -> Changes:
    """Changes of the job: it runs `program/train.py`, which saves seconds of CPU in each rank.

    A training from scratch waits at its first checkpoint while `pause` exists.
    """
    return {
        "code: ../../trainers": f"code: {PROGRAM}",
        "python -m trainers.train\n": f"PYTHONPATH={TRAINERS} python train.py --pause {pause}\n",
    }
