"""The files of one job while it runs: `<state>/machinelearning/jobs/<name>/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class JobFolder:
    """The folder of one job. It is kept between attempts and deleted after the job's end."""

    root: Path

    @property
    def working_directory(self) -> Path:
        """The job's code, and the current folder of its processes."""
        return self.root / "wd"

    @property
    def captured(self) -> dict[str, Path]:
        """Folders that Azure ML captures by itself: `./outputs` and `./logs`."""
        return {name: self.working_directory / name for name in ("outputs", "logs")}

    @property
    def user_logs(self) -> Path:
        """The output of the processes."""
        return self.root / "user_logs"

    @property
    def result(self) -> Path:
        """The outcome of the attempt, written before the last upload."""
        return self.root / "result.json"

    def input(self, name: str) -> Path:
        """The folder of an input."""
        return self.root / "inputs" / name

    def output(self, name: str) -> Path:
        """The folder of a named output."""
        return self.root / "outputs" / name

    def sync_state(self, name: str) -> Path:
        """The files that are known to equal their blobs."""
        return self.root / "sync" / f"{name}.json"
