"""Runs apps of azure-functions-durable 2, the version in requirements.txt: `make test-sdk2`.

It is installed with localazure into an environment of its own. There run the app of
`harness/sdk2_app`, and from the SDK's sources its samples and its end-to-end tests, for which
`func` is `localazure`. They skip a few tests because of a defect of Azurite, which are run here.

In localazure/tests: `python -m conformance.sdk2 PYTHON SOURCES [PYTEST_ARGUMENT ...]`; SOURCES is
a checkout of microsoft/durabletask-python.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from harness.sdk2 import Story, copy_app
from harness.wheel import Installed, build_wheel, started

SDK: Final = "azure-functions-durable"
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
SETTINGS: Final = "[pytest]\nasyncio_mode = auto\nmarkers =\n    functions_e2e: needs a host\n"
NO_SKIP: Final = "import pytest\nazurite_delayed_visibility = pytest.mark.functions_e2e\n"
AZURITE_PORT: Final = 10_000
"""The tests ask whether somebody listens there; their apps store nothing there."""


def run_samples(installed: Installed, samples: Path, log: Path) -> None:
    """Start each sample's orchestration, as its README does, and look at the output."""
    expected: dict[str, tuple[str, Any, Any]] = {
        "function-chaining": (
            "orchestrators/hello_cities",
            {},
            ["Hello Tokyo!", "Hello Seattle!", "Hello London!"],
        ),
        "fan-out-fan-in": ("fan-out-fan-in", [1, 2, 3, 4, 5], 55),
        "human-interaction": ("approvals", {}, {"approved": True}),
        "durable-entities": ("counters/c", {"amount": 5}, 5),
    }
    assert {one.name for one in samples.iterdir() if one.is_dir()} == set(expected)
    for sample, (route, given, output) in expected.items():
        with started(installed, samples / sample, log) as host:
            urls = host.get(f"/api/{route}", given)
            if sample == "human-interaction":
                host.get(f"/api/approvals/{urls['id']}", output)
            assert host.outcome(urls["statusQueryGetUri"]) == output, sample
        print(f"sample {sample}: {output}")


def run_tests(installed: Installed, tests: Path, *options: str) -> int:
    """Run the SDK's end-to-end tests; return pytest's exit status."""
    folder = tests / SDK / "e2e"
    (folder / "_markers.py").write_text(NO_SKIP)
    (tests / "pytest.ini").write_text(SETTINGS)
    for app in (folder / "apps").iterdir():
        (app / ".venv").symlink_to(installed.python.parents[1])
    programs = tests / "programs"
    programs.mkdir()
    (programs / "func").symlink_to(installed.program())
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    command = [installed.python, "-m", "pytest", "-q", "-rfs", "--import-mode=importlib", *options]
    with socket.create_server(("127.0.0.1", AZURITE_PORT), backlog=1000):
        return subprocess.run(
            [*command, folder],
            cwd=tests,
            env={**os.environ, "PATH": path, "PYTHONPATH": ""},
            check=False,
        ).returncode


def main(python: str, sources: Path, *options: str) -> int:
    """Return pytest's exit status; 1 if there is no such Python."""
    if shutil.which(python) is None:
        print(f"there is no {python}, which {SDK} 2 needs: SDK2_PYTHON names a Python 3.13")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy = shutil.copytree(sources, folder / "sources", ignore=shutil.ignore_patterns(".*"))
        installed = Installed(folder / "venv", python)
        installed.install(
            f"{build_wheel(folder)}[scheduler,worker]",
            *REQUIREMENTS.read_text().split(),
            "pytest",
            "pytest-asyncio",
            without_pins=[SDK, "azure-functions"],
        )
        print(installed.metadata(f"print('{SDK}', metadata.version('{SDK}'))"))
        for worker in ("localazure", "azure"):
            app = copy_app(folder / worker / "app", with_sdk=True)
            Story(installed.python, app, "--worker", worker).run()
            print(f"story of the app, --worker {worker}: passed")
        run_samples(installed, copy / SDK / "samples", folder / "samples.log")
        return run_tests(installed, copy / "tests", *options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]).resolve(), *sys.argv[3:]))
