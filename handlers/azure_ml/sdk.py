"""The import of azure.ai.ml, which is slow, and which an outage of Azure can interrupt.

The SDK asks Azure Resource Manager for the cloud's endpoints while it is imported. If that fails,
Python drops the module that failed and keeps its half-initialised neighbours, so that no later
import of this process would succeed.
"""

from __future__ import annotations

import importlib
import sys
import threading

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
        try:
            importlib.import_module(PACKAGE)
        except BaseException:
            for name in [each for each in sys.modules if _is_of_package(each)]:
                del sys.modules[name]
            raise


def _is_of_package(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")
