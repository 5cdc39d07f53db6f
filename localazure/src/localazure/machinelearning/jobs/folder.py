"""The local files of a running job: `<state>/machinelearning/jobs/<name>/`."""

from __future__ import annotations

from pathlib import Path

from localazure.runtime.environment import Environment

ENVIRONMENT_LOG = "environment.txt"
"""The log about the environment, in `user_logs`."""


def jobs_folder(environment: Environment) -> Path:
    """The folder that contains the folders of unfinished jobs."""
    folder = environment.part_folder("machinelearning").resolve() / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class JobFolder:
    """The folder of one job, kept between attempts and deleted after the job's end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.working_directory = root / "wd"
        """The job's code; also the working directory of its processes."""
        self.captured = {name: self.working_directory / name for name in ("outputs", "logs")}
        """Folders that Azure ML uploads without a named output: `./outputs` and `./logs`."""
        self.user_logs = root / "user_logs"
        """The stdout and stderr logs of the processes."""
        self.python = root / "python"
        """The virtual environment of the attempt."""
        self.result = root / "result.json"
        """The attempt's result, written before the last upload."""

    def input(self, name: str) -> Path:
        """The folder of an input."""
        return self.root / "inputs" / name

    def output(self, name: str) -> Path:
        """The folder of a named output."""
        return self.root / "outputs" / name

    def sync_state(self, name: str) -> Path:
        """The file that lists which files of an output folder equal their blobs."""
        return self.root / "sync" / f"{name}.json"
