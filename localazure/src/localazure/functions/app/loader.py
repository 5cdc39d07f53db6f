"""Loads an app folder as the Python worker does."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from localazure.functions.app import decorated_app, orchestrator_code
from localazure.functions.app.binding_kinds import (
    ALIASES,
    BLOB,
    BLOB_TRIGGER,
    DURABLE_TRIGGERS,
    INPUTS,
    ORCHESTRATION_TRIGGER,
    OUTPUTS,
    SERVICE_BUS_TRIGGER,
    TRIGGERS,
)
from localazure.functions.app.decorated_app import Definition
from localazure.functions.app.signature import RETURN, Binding, Signature, SignatureError, check
from localazure.functions.configuration.app_settings import is_disabled, resolve_references
from localazure.functions.errors import AppLoadError

DEFAULT_SCRIPT: Final = "function_app.py"
_SCRIPT_SETTING: Final = "PYTHON_SCRIPT_FILE_NAME"
_SCRIPT_NAME: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_\-]*\.py$")  # the worker's own


@dataclass(frozen=True, kw_only=True)
class LoadedFunction:
    """A function of the app that was checked and can be invoked."""

    name: str
    directory: Path
    call: Callable[..., Any]
    is_async: bool = False
    trigger: Binding
    bindings: tuple[Binding, ...] = ()
    """All bindings, including the trigger."""
    signature: Signature = field(default_factory=Signature)
    has_retry_policy: bool = False
    """Whether the function has a retry policy, which has no effect here."""
    is_disabled: bool = False
    faults: tuple[str, ...] = ()
    """The reasons why this function cannot run, one sentence each; the rest of the app can."""

    @property
    def durable_name(self) -> str:
        """The function's name in the durable engine: the trigger's name, or else its own."""
        field = DURABLE_TRIGGERS.get(self.trigger.kind)
        return str(self.trigger.settings.get(field) or self.name) if field else self.name

    def bindings_of(self, kind: str) -> list[Binding]:
        """The function's bindings of one kind."""
        return [binding for binding in self.bindings if binding.kind == kind]


@contextlib.contextmanager
def importable(app: Path) -> Generator[None]:
    """Put an app folder on the import path; remove the folder and the app's modules on exit."""
    packages = app / ".python_packages" / "lib" / "site-packages"
    added = [str(app), *([str(packages)] if packages.is_dir() else [])]
    before = dict(sys.modules)
    sys.path[:0] = added
    for name in _names_of_apps(before):
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for path in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(path)
        for name in _names_of_apps(sys.modules):
            del sys.modules[name]
        # Find all modules before deleting any: the path of a namespace package needs its parent.
        of_app = [
            name
            for name, module in list(sys.modules.items())
            if before.get(name) is not module
            and any(Path(place).is_relative_to(app) for place in _places(module))
        ]
        for name in of_app:
            del sys.modules[name]
        sys.modules.update({name: before[name] for name in _names_of_apps(before)})


def _places(module: Any) -> list[str]:
    """The files and folders of a module; a namespace package has folders only."""
    file = getattr(module, "__file__", None)
    return [file] if file else list(getattr(module, "__path__", ()))


def _names_of_apps(modules: Mapping[str, Any]) -> list[str]:
    """Modules that each app imports again: its script, and extensions, which hold global state."""
    roots = (Path(DEFAULT_SCRIPT).stem, "azurefunctions")
    return [name for name in modules if name.partition(".")[0] in roots]


def load(
    app: Path, settings: Mapping[str, str], only: tuple[str, ...] = ()
) -> list[LoadedFunction]:
    """Import the app (see `importable`) and check each of its functions.

    As on Azure, if the worker refuses one function, no function of the app runs:
    the worker then indexes nothing. A function that only the host refuses (for a missing setting
    or an unknown kind of binding) is loaded with its `faults`, and the others run.

    Args:
        app: the app's folder, absolute.
        settings: app settings, for `%NAME%` and `AzureWebJobs.NAME.Disabled`.
        only: the functions to load, empty for all of them.

    Raises:
        AppLoadError: the app cannot be imported, or functions do not match their bindings; names
        all of these functions.
    """
    file = settings.get(_SCRIPT_SETTING, DEFAULT_SCRIPT)
    if not _SCRIPT_NAME.match(file):
        raise AppLoadError(
            f"the app setting {_SCRIPT_SETTING} is {file!r}, which the worker refuses: it takes "
            "letters, digits, `_` and `-` with `.py` at the end, and no folder"
        )
    script = app / file
    if not script.is_file():
        raise AppLoadError(
            f"no {script.name} in {app}: this host runs apps of the Python programming model v2"
        )
    functions = check_all(decorated_app.read(script), settings)
    selected = {name.lower() for name in only}
    return [one for one in functions if not selected or one.name.lower() in selected]


def check_all(definitions: list[Definition], settings: Mapping[str, str]) -> list[LoadedFunction]:
    """Check the functions of an app.

    Raises:
        AppLoadError: some functions do not match their bindings; names all of these functions.
    """
    functions: list[LoadedFunction] = []
    refusals: list[str] = []
    for definition in definitions:
        try:
            functions.append(_check(definition, settings))
        except SignatureError as error:
            refusals.append(f"cannot load the function {definition.name}: {error}")
    if refusals:
        raise AppLoadError("\n".join(refusals))
    return functions


def _check(definition: Definition, settings: Mapping[str, str]) -> LoadedFunction:
    faults: list[str] = []
    bindings = [_read_binding(one, settings, faults) for one in definition.bindings]
    signature = check(definition.call, bindings)
    _check_retry_policy(definition.retry_policy)
    bindings = [
        replace(
            one,
            is_reference=one.name in signature.inputs and signature.inputs[one.name].is_sdk_type,
        )
        for one in bindings
    ]
    (trigger,) = (one for one in bindings if one.name == definition.trigger and not one.is_output)
    faults += [fault for one in bindings if (fault := uncovered(one, trigger))]
    if trigger.kind == ORCHESTRATION_TRIGGER:
        faults += orchestrator_code.faults(definition.call)
    return LoadedFunction(
        name=definition.name,
        directory=definition.directory,
        call=definition.call,
        is_async=inspect.iscoroutinefunction(definition.call),
        trigger=trigger,
        bindings=tuple(bindings),
        signature=signature,
        has_retry_policy=bool(definition.retry_policy),
        is_disabled=is_disabled(definition.name, settings),
        faults=tuple(faults),
    )


def _check_retry_policy(policy: Mapping[str, Any]) -> None:
    """Check the numbers of a retry policy, as the worker does; it parses them as strptime does.

    Raises:
        SignatureError: names the argument and its value.
    """
    if not policy:
        return
    is_fixed = policy.get("strategy") == "fixed_delay"
    intervals = ("delay_interval",) if is_fixed else ("minimum_interval", "maximum_interval")
    key = "max_retry_count"
    try:
        int(str(policy.get(key)))
        for key in intervals:
            if is_fixed or policy.get(key):
                time.strptime(str(policy.get(key)), "%H:%M:%S")
    except ValueError:
        form = "a number" if key == "max_retry_count" else "of the form hh:mm:ss, up to 23:59:59"
        raise SignatureError(
            f"{key} of its retry policy is {policy.get(key)!r}; it must be {form}"
        ) from None


def _read_binding(
    document: Mapping[str, Any], settings: Mapping[str, str], faults: list[str]
) -> Binding:
    """A binding with its app settings resolved; adds a fault for each setting that is not set."""
    direction = str(document.get("direction", "in")).upper()
    name, kind = str(document["name"]), str(document["type"])
    kind = ALIASES.get(kind, kind)
    if direction == "INOUT":
        raise SignatureError(f"{name} has the direction inout, which Python does not support")
    if name == RETURN and direction != "OUT":
        raise SignatureError("the $return binding must have the direction out")
    resolved = dict(document)
    for key, value in document.items():
        if isinstance(value, str):
            try:
                resolved[key] = resolve_references(value, settings)
            except ValueError as error:
                faults.append(f"{key} of {name}: {error}")
    return Binding(name, kind, direction == "OUT", resolved)


def uncovered(binding: Binding, trigger: Binding) -> str | None:
    """Why this host cannot run a function with this binding; None if it can."""
    if binding.is_reference and binding.kind not in {BLOB, BLOB_TRIGGER, SERVICE_BUS_TRIGGER}:
        return (
            f"{binding.name} is an SDK type of {binding.kind}, which this host does not cover; "
            "it covers those of blobs and of Service Bus messages. Annotate it with a class of "
            "azure.functions"
        )
    if binding is trigger:
        covered, role = TRIGGERS, "trigger"
    elif binding.is_output:
        covered, role = OUTPUTS, "output"
    else:
        covered, role = INPUTS, "input"
    if binding.kind in covered:
        return None
    return (
        f"its {role} binding {binding.name} is of the kind {binding.kind}, which this host "
        f"does not cover; it covers {', '.join(sorted(covered))}"
    )
