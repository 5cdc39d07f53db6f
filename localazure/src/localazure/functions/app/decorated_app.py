"""The programming model v2: a script with one FunctionApp, whose decorators define the functions.

Source: https://github.com/Azure/azure-functions-python-worker (loader.index_function_app)
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import azure.functions
from azure.functions.decorators.function_app import Function

from localazure.functions.app.user_traceback import users_traceback
from localazure.functions.errors import AppLoadError


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A function as its author defined it."""

    name: str
    directory: Path
    """The value of `context.function_directory`."""
    call: Callable[..., Any]
    bindings: tuple[Mapping[str, Any], ...]
    """The bindings in the form of function.json."""
    trigger: str
    """Name of the trigger's binding."""
    retry_policy: Mapping[str, Any]
    """The arguments of `@app.retry`; empty without."""


def read(script: Path) -> list[Definition]:
    """Import an app's script and index its functions; the app's folder is on the import path.

    Raises:
        AppLoadError: the script cannot be imported, or its functions cannot be indexed.
    """
    return index(_find_register(_import(script), script), script)


def index(register: azure.functions.FunctionRegister, script: Path) -> list[Definition]:
    """The functions that an app's script defines.

    Raises:
        AppLoadError: they cannot be indexed.
    """
    try:
        indexed: list[Function] = register.get_functions()
    except Exception as error:  # the SDK may raise any error in the author's decorators
        raise AppLoadError(f"{script}: {error}") from error
    # The SDK keeps the names that it has given out. Azure's worker may ask for them, too.
    register.functions_bindings = {}
    return [_define(function, script.parent) for function in indexed]


def _import(script: Path) -> Any:
    try:
        return importlib.import_module(script.stem)
    except (Exception, SystemExit) as error:  # the author's code may raise any error
        raise AppLoadError(f"importing {script} failed:\n{users_traceback(error)}") from error


def _find_register(module: Any, script: Path) -> azure.functions.FunctionRegister:
    # A second name of the same app counts, too.
    registers = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, azure.functions.FunctionRegister)
    }
    if len(registers) != 1:
        apps = f"{len(registers)} FunctionApps" if registers else "no FunctionApp"
        raise AppLoadError(
            f"{script} has {apps} at its top level{' (' if registers else ''}"
            f"{', '.join(registers)}{')' if registers else ''}, it needs exactly one name of one; "
            "put further functions into a Blueprint and register that"
        )
    return next(iter(registers.values()))


def _define(function: Function, app: Path) -> Definition:
    return Definition(
        name=str(function.get_function_name()),
        directory=app,
        call=function.get_user_function(),
        bindings=tuple(json.loads(raw) for raw in function.get_raw_bindings()),
        trigger=str(getattr(function.get_trigger(), "name", "")),
        retry_policy=function.get_settings_dict("retry_policy") or {},
    )
