"""Programming model v1: each function is a folder with a function.json and a script.

As on Azure, only a function that cannot be read or imported is in error; the others run.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-reference-python?pivots=python-mode-configuration,
https://github.com/Azure/azure-functions-python-worker (loader.load_function)
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_snake

from localazure.configuration_file import (
    ConfigurationModel,
    OpenConfigurationModel,
    read_configuration,
)
from localazure.errors import ConfigurationError
from localazure.functions.app.definition import Definition
from localazure.functions.app.user_traceback import users_traceback
from localazure.functions.errors import AppLoadError

FILE_NAME: Final = "function.json"
PACKAGE: Final = "__app__"
"""The package of an app's folders, so that `from ..shared import x` works."""

_DEFAULT_SCRIPTS: Final = ("__init__.py", "main.py")


def read(app: Path) -> list[Definition]:
    """Read and import every function of an app; the app's folder is on the import path.

    Raises:
        AppLoadError: the app has no functions.
    """
    files = sorted(app.glob(f"*/{FILE_NAME}"))
    if not files:
        raise AppLoadError(
            f"no function_app.py in {app} and no folder with a {FILE_NAME}: this host runs apps "
            "of the Python programming models v2 and v1"
        )
    package = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(PACKAGE, None))
    package.__path__ = [str(app)]
    sys.modules[PACKAGE] = package
    return [one for file in files if (one := _define(file)) is not None]


class _Binding(OpenConfigurationModel):
    """An entry of `bindings`; the other keys depend on its type."""

    name: str
    type: str
    direction: str | None = None

    def settings(self) -> dict[str, Any]:
        """All keys of the entry, as they are in the file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class _File(ConfigurationModel):
    """function.json; keys for other languages are ignored."""

    model_config = ConfigDict(extra="ignore")

    bindings: tuple[_Binding, ...]
    script_file: str | None = None
    entry_point: str = "main"
    disabled: bool = False
    excluded: bool = False
    retry: dict[str, Any] = Field(default_factory=dict)


def _define(path: Path) -> Definition | None:
    directory = path.parent
    file = None
    call, bindings, trigger, fault = None, (), "", None
    try:
        file = read_configuration(path, _File)
        if file.excluded:
            return None
        bindings = tuple(binding.settings() for binding in file.bindings)
        trigger = _trigger(bindings)
        call = _import(file, directory)
    except (ConfigurationError, ValueError) as error:
        fault = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's code may raise any error
        fault = f"importing it failed:\n{users_traceback(error)}"
    return Definition(
        name=directory.name,
        directory=directory,
        call=call,
        bindings=bindings,
        trigger=trigger,
        retry=_retry(file.retry if file else {}),
        is_disabled=file is not None and file.disabled,
        fault=fault,
    )


def _trigger(bindings: tuple[dict[str, Any], ...]) -> str:
    triggers = [
        str(binding["name"])
        for binding in bindings
        if str(binding["type"]).endswith("Trigger") and binding.get("direction") != "out"
    ]
    if not triggers:
        raise ValueError(
            "No trigger binding specified. A function must have a trigger input binding."
        )
    if len(triggers) > 1:
        raise ValueError(
            "Multiple trigger bindings defined. A function can only have a single trigger binding."
        )
    return triggers[0]


def _import(file: _File, directory: Path) -> Callable[..., Any]:
    names = (file.script_file,) if file.script_file else _DEFAULT_SCRIPTS
    scripts = [script for name in names if (script := directory / name).is_file()]
    if not scripts:
        raise ValueError(f"no {' or '.join(map(str, names))} in {directory}")
    parts = scripts[0].resolve().relative_to(directory.parent).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    module = importlib.import_module(".".join((PACKAGE, *parts)))
    call = getattr(module, file.entry_point, None)
    if not callable(call):
        raise ValueError(f"function {file.entry_point}() is not present in {scripts[0]}")  # noqa: TRY004 - as the worker
    return cast("Callable[..., Any]", call)


def _retry(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a policy to the names of `@app.retry`, such as maxRetryCount to max_retry_count."""
    words = {to_snake(name): value for name, value in settings.items()}
    if "strategy" in words:
        words["strategy"] = to_snake(str(words["strategy"]))
    return words
