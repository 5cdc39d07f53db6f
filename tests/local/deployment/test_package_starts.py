"""The package that azd deploys starts in the Functions host, with all of its functions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from localazure.processes.ports import free_ports
from tests.contract.test_names import TRIGGERS
from tests.unit.deployment.package import build_package

DEADLINE_SECONDS = 90.0


def functions_of(url: str) -> set[str]:
    with urllib.request.urlopen(f"{url}/admin/functions", timeout=10) as answer:
        return {each["name"] for each in json.load(answer)}


def test_the_package_starts(tmp_path: Path) -> None:
    """Its services are not there: the host comes up, and its triggers keep trying."""
    package = tmp_path / "package"
    build_package(package)
    (nobody, port) = free_ports(2)
    away = f"http://127.0.0.1:{nobody}"
    storage = (
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=a2V5;"
        f"BlobEndpoint={away}/devstoreaccount1;"
    )
    settings = {
        "DataStorage": storage,
        "WorkspaceStorage": storage,
        "ServiceBus": (
            f"Endpoint=sb://127.0.0.1:{nobody};SharedAccessKeyName=n;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true;"
        ),
        "RECONCILE_SCHEDULE": "0 0 0 1 1 *",
    }
    (package / "local.settings.json").write_text(
        json.dumps({"IsEncrypted": False, "Values": settings})
    )
    log = tmp_path / "host.log"
    command = [sys.executable, "-m", "localazure", "start", str(package)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--state", str(tmp_path / "state")],
            cwd=tmp_path,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        found: set[str] = set()
        while not found:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            try:
                found = functions_of(f"http://127.0.0.1:{port}")
            except OSError:
                time.sleep(0.1)
    finally:
        process.terminate()
        process.wait(30)
    assert set(TRIGGERS) <= found
