"""Before packaging: write the durable backend to host.json, and keep the rest of it.

azd runs this with its environment. Azure's scale controller reads `storageProvider` from the
package only: a backend that app settings choose runs, and does not scale
(Azure/azure-functions-durable-extension#2622). The next package after a change of
`LANDFALL_DURABLE_BACKEND` says so again. Your own host.json is changed; do not commit that.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

HOST = Path(__file__).parents[2] / "host.json"
MANAGED = {
    "type": "azureManaged",
    "connectionStringName": "DURABLE_TASK_SCHEDULER_CONNECTION_STRING",
}


def set_backend(host: dict[str, Any], backend: str) -> dict[str, Any]:
    """host.json for a value of `LANDFALL_DURABLE_BACKEND`.

    Raises:
        ValueError: it is no backend.
    """
    if backend not in {"azureStorage", "durableTaskScheduler"}:
        raise ValueError(f"LANDFALL_DURABLE_BACKEND is {backend}: no such backend")
    extensions = dict(host["extensions"])
    durable = dict(extensions["durableTask"])
    if backend == "durableTaskScheduler":
        durable["storageProvider"] = MANAGED
    elif durable.get("storageProvider") == MANAGED:  # others are settings of Azure Storage
        del durable["storageProvider"]
    return {**host, "extensions": {**extensions, "durableTask": durable}}


def main() -> int:
    """Write host.json if its backend is another one."""
    before = json.loads(HOST.read_text("utf-8"))
    backend = os.environ.get("LANDFALL_DURABLE_BACKEND") or "azureStorage"
    after = set_backend(before, backend)
    if after != before:
        HOST.write_text(json.dumps(after, indent=2) + "\n", "utf-8")
        print(f"host.json: the durable backend is {backend}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
