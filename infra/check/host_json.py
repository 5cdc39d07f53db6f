"""host.json: known keys, values that the Functions host takes, and those that the page explains.

https://learn.microsoft.com/azure/azure-functions/functions-host-json
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.check.app_rules import CONNECTION_OF_SCHEDULER, page_rows
from infra.check.azure_table import Form, OneOf
from infra.check.deployed_rules import leaves
from infra.check.problem import Problem

FILE, PAGE = "host.json", "docs/host-json.md"
LEVEL = OneOf(("Trace", "Debug", "Information", "Warning", "Error", "Critical", "None"))
TIME = Form(r"\d\d:[0-5]\d:[0-5]\d", "a time as hh:mm:ss")
FLAG, COUNT = OneOf((True, False)), OneOf(range(1, 10_000))
DURABLE, BUS = "extensions.durableTask", "extensions.serviceBus"
VALUES: Mapping[str, Any] = {
    "version": "2.0",
    "logging.logLevel.default": LEVEL,
    "logging.logLevel.Azure": LEVEL,
    "telemetryMode": "OpenTelemetry",
    "extensionBundle.id": "Microsoft.Azure.Functions.ExtensionBundle",
    "extensionBundle.version": Form(
        r"\[4\.(3\d|[4-9]\d)\.\d+, 5\.0\.0\)", "a range from 4.30 below 5.0.0"
    ),
    "functionTimeout": TIME,
    f"{DURABLE}.hubName": Form(
        r"[A-Za-z][A-Za-z0-9]{2,44}", "3 to 45 letters and digits, a letter first"
    ),
    f"{DURABLE}.defaultVersion": Form(r"\d+\.\d+", "a version such as 1.1"),
    f"{DURABLE}.versionMatchStrategy": OneOf(("None", "Strict", "CurrentOrOlder")),
    f"{DURABLE}.versionFailureStrategy": OneOf(("Reject", "Fail")),
    f"{DURABLE}.maxConcurrentActivityFunctions": COUNT,
    f"{DURABLE}.maxConcurrentOrchestratorFunctions": COUNT,
    f"{DURABLE}.storeInputsInOrchestrationHistory": FLAG,
    f"{BUS}.prefetchCount": OneOf(range(10_000)),
    f"{BUS}.maxConcurrentCalls": COUNT,
    f"{BUS}.maxAutoLockRenewalDuration": TIME,
}

OF_THE_PACKAGE = {
    f"{DURABLE}.storageProvider.type": "azureManaged",
    f"{DURABLE}.storageProvider.connectionStringName": CONNECTION_OF_SCHEDULER,
}
"""What infra/hooks/durable_backend.py writes for `durableTaskScheduler`."""


def check(root: Path) -> Iterator[Problem]:
    """Each value is known, fits, and is the page's."""
    text = (root / FILE).read_text("utf-8")
    try:
        configured = dict(leaves(json.loads(text)))
    except ValueError as error:
        yield Problem(FILE, 1, str(error))
        return
    explained = {
        cells[0]: cells[1] for _, cells in page_rows((root / PAGE).read_text("utf-8"), TITLE)
    }
    for path, value in configured.items():
        line = line_of(text, path)
        if path not in VALUES and OF_THE_PACKAGE.get(path) == value:
            continue
        if path not in VALUES:
            yield Problem(FILE, line, f"{path} is no setting that this check knows")
        elif VALUES[path] != value:
            yield Problem(FILE, line, f"{path} must be {VALUES[path]!r}, it is {value!r}")
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        if path in explained and explained[path] != shown:
            yield Problem(FILE, line, f"{path} is {shown}, {PAGE} says {explained[path]}")
    for path in sorted(
        (VALUES.keys() | explained.keys()) - configured.keys() - OF_THE_PACKAGE.keys()
    ):
        yield Problem(FILE, 1, f"{path} is missing")
    renewal, timeout = (
        configured.get(f"{BUS}.maxAutoLockRenewalDuration"),
        configured.get("functionTimeout"),
    )
    if str(renewal) < str(timeout):
        line = line_of(text, f"{BUS}.maxAutoLockRenewalDuration")
        yield Problem(
            FILE,
            line,
            f"maxAutoLockRenewalDuration {renewal} ends before functionTimeout {timeout}",
        )


TITLE = "host.json: settings that differ from the default, and why"


def line_of(text: str, path: str) -> int:
    """The line of a key in a JSON text, in which its parents' keys stand before it."""
    at = 0
    for key in path.split("."):
        found = re.compile(rf'"{re.escape(key)}"\s*:').search(text, at)
        at = found.end() if found else at
    return text.count("\n", 0, at) + 1
