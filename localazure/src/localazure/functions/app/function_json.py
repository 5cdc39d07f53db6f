"""Programming model v1: a folder a function, with a function.json and a script.

As on Azure, a function that cannot be imported or read is in error by itself; the others run.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-reference-python?pivots=python-mode-configuration,
https://github.com/Azure/azure-functions-python-worker (loader.load_function)
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from localazure.functions.app.definition import Definition
from localazure.functions.app.user_traceback import users_traceback
from localazure.functions.configuration.json_file import read_object
from localazure.functions.errors import AppLoadError

FILE_NAME: Final = "function.json"
PACKAGE: Final = "__app__"
"""What the folders of an app are imported as parts of; so `from ..shared import x` works."""

_DEFAULT_SCRIPTS: Final = ("__init__.py", "main.py")
_DEFAULT_ENTRY_POINT: Final = "main"


def read(app: Path) -> list[Definition]:
    """Read and import every function of an app; its folder is on the import path.

    Raises:
        AppLoadError: there is none.
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


def _define(file: Path) -> Definition | None:
    directory = file.parent
    document: dict[str, Any] = {}
    call, bindings, trigger, fault = None, (), "", None
    try:
        document = read_object(file)
        if document.get("excluded"):
            return None
        bindings = _bindings(document)
        trigger = _trigger(bindings)
        call = _import(document, directory)
    except (AppLoadError, ValueError) as error:
        fault = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the author's code raises
        fault = f"importing it failed:\n{users_traceback(error)}"
    return Definition(
        name=directory.name,
        directory=directory,
        call=call,
        bindings=bindings,
        trigger=trigger,
        retry=_retry(document.get("retry") or {}),
        is_disabled=str(document.get("disabled", "")).lower() in {"true", "1"},
        fault=fault,
    )


def _bindings(document: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    bindings: Any = document.get("bindings")
    if not isinstance(bindings, list) or not all(
        isinstance(binding, dict) and {"name", "type"} <= cast("dict[str, Any]", binding).keys()
        for binding in cast("list[Any]", bindings)
    ):
        raise ValueError(f"bindings of {FILE_NAME} is no list of objects with a name and a type")
    return tuple(cast("list[dict[str, Any]]", bindings))


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


def _import(document: Mapping[str, Any], directory: Path) -> Callable[..., Any]:
    names = (document["scriptFile"],) if "scriptFile" in document else _DEFAULT_SCRIPTS
    scripts = [script for name in names if (script := directory / str(name)).is_file()]
    if not scripts:
        raise ValueError(f"no {' or '.join(map(str, names))} in {directory}")
    parts = scripts[0].resolve().relative_to(directory.parent).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    module = importlib.import_module(".".join((PACKAGE, *parts)))
    name = str(document.get("entryPoint") or _DEFAULT_ENTRY_POINT)
    call = getattr(module, name, None)
    if not callable(call):
        raise ValueError(f"function {name}() is not present in {scripts[0]}")  # noqa: TRY004 - the text is what counts
    return cast("Callable[..., Any]", call)


def _retry(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A policy in the words of `@app.retry`: maxRetryCount is max_retry_count there."""

    def snake_case(text: str) -> str:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower()

    words = {snake_case(name): value for name, value in settings.items()}
    if "strategy" in words:
        words["strategy"] = snake_case(str(words["strategy"]))
    return words
