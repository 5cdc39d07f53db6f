"""The package that azd deploys starts in the Functions host, with all of its functions."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.contract.test_names import TRIGGERS
from tests.local.deployment.started_package import functions_of_started
from tests.unit.deployment.package import build_package


def test_the_package_starts(tmp_path: Path) -> None:
    """Uses the environment of the tests; `make package` uses an empty one."""
    package = tmp_path / "package"
    build_package(package)
    command = [sys.executable, "-m", "localazure"]
    assert set(TRIGGERS) <= functions_of_started(command, package, tmp_path)
