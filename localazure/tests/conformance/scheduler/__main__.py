"""Runs Microsoft's end-to-end tests of the Durable Task SDK: `make conformance-scheduler`.

Those of durabletask.azuremanaged are for an emulator: they get `localazure scheduler`. Those of
durabletask start the SDK's backend in memory: `in_place_of_memory.py` gives them a scheduler in
its place. Some of them look into that backend; localazure/docs/scheduler.md names them.

In localazure/tests: `python -m conformance.scheduler SOURCES [PYTEST_ARGUMENT ...]`; SOURCES is a
checkout of microsoft/durabletask-python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from harness.child_process import ChildProcess
from localazure.processes.ports import LOOPBACK, free_ports

PLUGIN: Final = "conformance.scheduler.in_place_of_memory"
SETTINGS: Final = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
markers =
    dts: needs a scheduler
    azurite: needs Azurite
"""
START_SECONDS: Final = 60


def end_to_end(tests: Path) -> list[Path]:
    """The files with tests that need a backend."""
    return [
        file
        for file in sorted(tests.glob("durabletask*/**/test_*.py"))
        if "mark.dts" in (text := file.read_text()) or "import create_test_backend" in text
    ]


def main(sources: Path, *options: str) -> int:
    """Run the tests; return pytest's exit status."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(sources / "tests", folder / "tests")
        (folder / "pytest.ini").write_text(SETTINGS)
        command = [sys.executable, "-m", "localazure", "scheduler", "--port", str(port)]
        command += ["--page-port", "0"]
        scheduler = ChildProcess(
            [*command, "--state", str(folder / "state")], folder / "scheduler.log"
        )
        with scheduler:
            scheduler.wait_for_output("ready", START_SECONDS)
            command = [sys.executable, "-m", "pytest", "-q", "-rfs", "-p", PLUGIN, *options]
            return subprocess.run(
                [*command, "--import-mode=importlib", *end_to_end(folder / "tests")],
                cwd=folder,
                env={
                    **os.environ,
                    "ENDPOINT": f"http://{LOOPBACK}:{port}",
                    "TASKHUB": "default",
                    "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),  # noqa: PTH109 - of this package
                },
                check=False,
            ).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
