"""The import of azure.ai.ml, which is slow and can fail during an outage of Azure.

On import, the SDK requests the cloud's endpoints from Azure Resource Manager. If that fails, Python
removes only the module that failed; the partly initialized modules stay, and every later import in
this process fails.

For a cloud whose name it does not know (Azure Stack, a laptop's), the SDK requests the endpoints
again, on a new connection, for each job that it reads or submits: it stores them under wrong keys.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

PACKAGE = "azure.ai.ml"

_import_lock = threading.Lock()


def import_azure_ml() -> None:
    """Import azure.ai.ml; on failure, remove all of its modules.

    Raises:
        azure.ai.ml.exceptions.MlException: the cloud's endpoints cannot be read; call it again.
    """
    with _import_lock:
        if PACKAGE in sys.modules:
            return
        # tqdm reads this variable on import; there is no terminal for progress bars.
        os.environ.setdefault("TQDM_DISABLE", "1")
        try:
            importlib.import_module(PACKAGE)
            _keep_endpoints()
        except BaseException:
            for name in [each for each in sys.modules if _is_of_package(each)]:
                del sys.modules[name]
            raise


def _keep_endpoints() -> None:
    """Store the current cloud's endpoints under the keys that the SDK reads."""
    clouds: Any = importlib.import_module(f"{PACKAGE}._azure_environments")
    name = clouds._get_default_cloud_name()  # noqa: SLF001 - there is no public way
    clouds._environments[name] = clouds._get_cloud(name)  # noqa: SLF001 - likewise


def _is_of_package(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")
