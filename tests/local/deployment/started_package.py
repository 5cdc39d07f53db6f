"""Starts the package in the Functions host, without any of its services."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from localazure.processes.ports import free_ports

DEADLINE_SECONDS = 90.0


def functions_of_started(localazure: Sequence[str | Path], package: Path, folder: Path) -> set[str]:
    """Names of the functions that a package's host lists once it answers.

    The host starts without the services, whose triggers retry.

    Args:
        localazure: the command, up to and without `start`.
        package: the app's folder; it gets a `local.settings.json`.
        folder: for the log and the state.
    """
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
    log = folder / "host.log"
    command = [*localazure, "start", package, "--port", str(port), "--state", folder / "state"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        found: set[str] = set()
        while not found:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            try:
                found = _functions(f"http://127.0.0.1:{port}")
            except OSError:
                time.sleep(0.1)
    finally:
        process.terminate()
        process.wait(30)
    return found


def _functions(url: str) -> set[str]:
    with urllib.request.urlopen(f"{url}/admin/functions", timeout=10) as answer:
        return {each["name"] for each in json.load(answer)}
