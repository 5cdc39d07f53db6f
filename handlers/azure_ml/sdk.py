"""The import of azure.ai.ml, which is slow, and which an outage of Azure can interrupt.

The SDK asks Azure Resource Manager for the cloud's endpoints while it is imported. If that fails,
Python drops the module that failed and keeps its half-initialised neighbours, so that no later
import of this process would succeed.

Of a cloud that it does not know by name (Azure Stack, the laptop's) the SDK asks for the endpoints
again, on a new connection, at each job that it reads or submits: it keeps them under wrong keys.
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
    """Import azure.ai.ml, or leave no trace of the attempt.

    Raises:
        azure.ai.ml.exceptions.MlException: the cloud's endpoints cannot be had; call it again.
    """
    with _import_lock:
        if PACKAGE in sys.modules:
            return
        # tqdm reads it while it is imported: there is no terminal to draw progress bars on.
        os.environ.setdefault("TQDM_DISABLE", "1")
        try:
            importlib.import_module(PACKAGE)
            _keep_endpoints()
        except BaseException:
            for name in [each for each in sys.modules if _is_of_package(each)]:
                del sys.modules[name]
            raise


def _keep_endpoints() -> None:
    """Put the endpoints of the current cloud where the SDK looks for those of Azure's own."""
    clouds: Any = importlib.import_module(f"{PACKAGE}._azure_environments")
    name = clouds._get_default_cloud_name()  # noqa: SLF001 - there is no public way
    clouds._environments[name] = clouds._get_cloud(name)  # noqa: SLF001 - likewise


def _is_of_package(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")
