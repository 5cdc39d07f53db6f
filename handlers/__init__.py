"""The app's I/O: triggers, activities, and the clients that they use."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType


def loaded_on_demand(package: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package whose modules are loaded when they are first used.

    A cold start then does not pay for what it does not call.
    https://peps.python.org/pep-0562/
    """

    def load(name: str) -> ModuleType:
        module = f"{package}.{name}"
        if name.startswith("_") or importlib.util.find_spec(module) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(module)

    return load
