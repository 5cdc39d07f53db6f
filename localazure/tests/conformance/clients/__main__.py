"""Runs independent clients against the local services: `make conformance-clients`.

SDKs for Node (from npm) and qpid-proton (from PyPI, needs a C compiler) are installed in the user's
cache; this repository contains none of them. Microsoft's tests of azure-servicebus are in its
source distribution on PyPI (`pip download --no-binary :all: --no-deps azure-servicebus`);
SERVICEBUS_TESTS names the folder `tests` in it.

In localazure/tests: `python -m conformance.clients [--servicebus-tests FOLDER] [NAME ...]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

from harness.part_process import running_parts
from localazure.runtime.environment import SERVICE_BUS_KEY_NAME, Environment
from localazure.storage.azurite_installation import cache_folder, find_node

FOLDER: Final = Path(__file__).parent
PROTON: Final = "python-qpid-proton==0.40.0"
MICROSOFT: Final = (
    *("test_queues.py", "test_topic.py", "test_subscriptions.py", "test_sb_client.py"),
    *("async_tests/test_queues_async.py", "async_tests/test_topic_async.py"),
    *("async_tests/test_subscriptions_async.py", "async_tests/test_sb_client_async.py"),
)
# Microsoft's tests sleep for up to five minutes. One test sends ten times and each time waits for
# the SDK's reader thread, which releases its lock after 60 s or at the next heartbeat.
TEST_SECONDS: Final = 900

_QUEUES: Final = (
    *("fields", "batch", "abandon", "dead", "defer", "schedule", "renew", "delete"),
    *("events", "blob-events", "proton"),
)
_ONLY_A: Final = {"FilterType": "Correlation", "CorrelationFilter": {"Label": "a"}}
_RULES: Final = [{"Name": "a", "Properties": _ONLY_A}]
_TOPIC: Final = {"Name": "topic", "Subscriptions": [{"Name": "only-a", "Rules": _RULES}]}


def _subscription(name: str, topic: str, queue: str, **properties: Any) -> dict[str, Any]:
    destination = {
        "endpointType": "ServiceBusQueue",
        "properties": {"resourceId": f"/namespaces/n/queues/{queue}"},
    }
    return {"name": name, "topic": topic, "properties": {**properties, "destination": destination}}


@contextlib.contextmanager
def _services() -> Generator[Environment]:
    with tempfile.TemporaryDirectory(prefix="localazure-conformance-") as scratch:
        folder = Path(scratch)
        queues = [{"Name": name} for name in _QUEUES]
        namespace = {"Name": "n", "Queues": queues, "Topics": [_TOPIC]}
        (folder / "Config.json").write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
        (folder / "storage.json").write_text(json.dumps({"containers": ["landing", "events"]}))
        of_events = {"subjectBeginsWith": "/blobServices/default/containers/events/"}
        (folder / "event-grid.json").write_text(
            json.dumps(
                {
                    "topics": [
                        {"name": "cloud", "inputSchema": "CloudEventSchemaV1_0"},
                        {"name": "grid", "inputSchema": "EventGridSchema"},
                    ],
                    "eventSubscriptions": [
                        _subscription("cloud", "cloud", "events"),
                        _subscription("grid", "grid", "events"),
                        _subscription("blobs", "storage", "blob-events", filter=of_events),
                    ],
                }
            )
        )
        environment = Environment.draw(folder / "state", app=folder, config=folder)
        environment.save()
        with running_parts(environment.state, "storage", "servicebus", "eventgrid"):
            yield environment


def node(environment: Environment) -> int:
    """Run @azure/service-bus, @azure/eventgrid and @azure/storage-blob in Node."""
    folder = cache_folder(os.environ) / "conformance-node"
    shutil.copytree(FOLDER / "node", folder, dirs_exist_ok=True)
    _run(["npm", "install", "--silent", "--no-audit", "--no-fund"], folder)
    variables = {
        "SERVICE_BUS": environment.service_bus_connection_string,
        "EVENT_GRID": f"http://127.0.0.1:{environment.ports.event_grid}",
        "EVENT_GRID_KEY_cloud": environment.event_grid_keys("cloud")[0],
        "EVENT_GRID_KEY_grid": environment.event_grid_keys("grid")[0],
        "STORAGE": environment.storage_connection_string(),
    }
    scripts = sorted(path.name for path in (FOLDER / "node").glob("*.test.mjs"))
    # The scripts share the queue `events`, so they run one after the other.
    command = [
        find_node(),
        "--test",
        "--test-concurrency=1",
        "--test-timeout=120000",
        "--test-reporter=spec",
        *scripts,
    ]
    return _run(command, folder, variables)


def proton(environment: Environment) -> int:
    """Run qpid-proton, an AMQP client without knowledge of Azure."""
    folder = cache_folder(os.environ) / "conformance-proton"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if _run([python, *pip, PROTON], folder):
        return 1
    script = FOLDER / "proton_client.py"
    host = f"127.0.0.1:{environment.ports.service_bus}"
    arguments = [host, SERVICE_BUS_KEY_NAME, environment.keys.service_bus]
    return _run([python, script, *arguments], folder)


def microsoft(tests: Path) -> int:
    """Run Microsoft's tests of azure-servicebus."""
    path = os.pathsep.join([str(FOLDER.parents[1]), str(tests), str(tests / "async_tests")])
    return _run(
        [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", tests),
            *("-p", "conformance.clients.microsoft_tests", "-p", "no:cacheprovider"),
            *("-o", "asyncio_mode=auto", "-n", "8", "--timeout", str(TEST_SECONDS)),
            *("-q", "-rsf", "--tb=line", "--show-capture=no", "-W", "ignore"),
            *(str(tests / name) for name in MICROSOFT),
        ],
        tests,
        {"PYTHONPATH": path},
    )


def _run(
    command: Sequence[str | Path], folder: Path, variables: dict[str, str] | None = None
) -> int:
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **(variables or {})}, check=False
    ).returncode


CLIENTS: Final = {"node": node, "proton": proton}


def main() -> int:
    """Return 1 if a client fails."""
    parser = argparse.ArgumentParser(prog="python -m conformance.clients", description=__doc__)
    parser.add_argument("--servicebus-tests", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CLIENTS)}")
    parsed = parser.parse_args()
    bad: list[str] = []
    with _services() as environment:
        for name, run in CLIENTS.items():
            if (not parsed.names or name in parsed.names) and run(environment):
                bad.append(name)
    if parsed.servicebus_tests is not None and microsoft(parsed.servicebus_tests.resolve()):
        bad.append("Microsoft's tests")
    print(f"not as expected: {', '.join(bad)}" if bad else "all as expected")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
