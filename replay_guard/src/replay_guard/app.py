"""Loads an app's folder as the Functions worker does, and finds its orchestrators.

https://github.com/Azure/azure-functions-python-worker (loader.index_function_app): the folder is on
the import path, `function_app.py` is imported, and its single FunctionApp lists its functions.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import azure.functions

from replay_guard.history import HTTP_ACTIVITY, StepKind
from replay_guard.versions import Versioning
from replay_guard.worker import Ask, Handle

_SCRIPT: Final = "function_app"
_NAME_FIELDS: Final = {
    "orchestrationTrigger": (StepKind.CHILD, "orchestration"),
    "activityTrigger": (StepKind.ACTIVITY, "activity"),
}


class AppNotLoaded(Exception):
    """The app's folder cannot be loaded; the message says why."""


@dataclass(frozen=True)
class App:
    """An app, as replay needs it.

    Attributes:
        orchestrators: name in lower case → the registered handle.
        activities: names in lower case.
        versioning: of host.json.
        ask: what calls the handles; None: as the installed version of the SDK needs it.
    """

    orchestrators: Mapping[str, Handle]
    activities: frozenset[str]
    versioning: Versioning
    ask: Ask | None = None

    def knows(self, kind: StepKind, name: str) -> bool:
        """Whether the app has a function. Hosts ignore upper and lower case in names."""
        if kind is StepKind.CHILD:
            return name.casefold() in self.orchestrators
        if kind is StepKind.ACTIVITY:
            return name.casefold() in self.activities or name == HTTP_ACTIVITY
        return True


def load_app(folder: Path, settings: Mapping[str, str]) -> App:
    """Import an app; its settings become environment variables of this process.

    Raises:
        AppNotLoaded: the folder has no app, or its import fails.
    """
    if not (folder / f"{_SCRIPT}.py").is_file():
        raise AppNotLoaded(
            f"{folder} has no {_SCRIPT}.py: name the folder of an app of the programming model v2"
        )
    versioning = _read_versioning(folder / "host.json")
    os.environ.update(settings)
    packages = folder / ".python_packages" / "lib" / "site-packages"
    sys.path[:0] = [str(folder), *([str(packages)] if packages.is_dir() else [])]
    try:
        module = importlib.import_module(_SCRIPT)
        functions = _find_app(module, folder).get_functions()
    except AppNotLoaded:
        raise
    except (Exception, SystemExit) as error:  # the app's code may raise anything
        raise AppNotLoaded(
            f"importing {folder / _SCRIPT}.py failed. Does it need app settings? Name a file with "
            f"--settings.\n{''.join(traceback.format_exception(error)).rstrip()}"
        ) from error
    handles: dict[StepKind, dict[str, Handle]] = {StepKind.CHILD: {}, StepKind.ACTIVITY: {}}
    for function in functions:
        trigger = cast("Any", function.get_trigger())
        kind, field = _NAME_FIELDS.get(trigger.type if trigger else "", (None, ""))
        if kind is not None:
            name = getattr(trigger, field, None) or function.get_function_name()
            handles[kind][str(name).casefold()] = function.get_user_function()
    return App(handles[StepKind.CHILD], frozenset(handles[StepKind.ACTIVITY]), versioning)


def read_settings(file: Path) -> dict[str, str]:
    """App settings: `Values` of a local.settings.json, or a JSON object of strings.

    Raises:
        AppNotLoaded: the file cannot be read.
    """
    document = _read_json(file)
    values = document.get("Values", document)
    if not isinstance(values, dict):
        raise AppNotLoaded(f"{file}: Values must be an object of texts")
    return {str(key): str(value) for key, value in cast("dict[str, Any]", values).items()}


def _find_app(module: Any, folder: Path) -> azure.functions.FunctionRegister:
    apps = {
        id(value): value
        for value in vars(module).values()
        if isinstance(value, azure.functions.FunctionRegister)
    }
    if len(apps) != 1:
        raise AppNotLoaded(
            f"{folder / _SCRIPT}.py has {len(apps)} FunctionApps at its top level, it needs "
            "exactly one"
        )
    return next(iter(apps.values()))


def _read_versioning(host_json: Path) -> Versioning:
    if not host_json.is_file():
        return Versioning()
    durable: dict[str, Any] = _read_json(host_json).get("extensions", {}).get("durableTask", {})
    configured = {
        "default_version": durable.get("defaultVersion"),
        "match_strategy": durable.get("versionMatchStrategy"),
    }
    return Versioning(**{key: str(value) for key, value in configured.items() if value is not None})


def _read_json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise AppNotLoaded(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(document, dict):
        raise AppNotLoaded(f"{file} must be a JSON object")
    return cast("dict[str, Any]", document)
