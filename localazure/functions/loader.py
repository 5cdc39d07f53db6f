"""Loads an app folder as the Python worker does: imports function_app.py and indexes it.

Source: https://github.com/Azure/azure-functions-python-worker (loader.index_function_app)
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import azure.functions
from azure.functions.decorators.function_app import Function

from localazure.functions.bindings import DURABLE_TRIGGERS, INPUTS, OUTPUTS, TRIGGERS
from localazure.functions.errors import AppLoadError
from localazure.functions.retry_policy import RetryPolicy
from localazure.functions.settings import is_disabled, resolve_references
from localazure.functions.signature import RETURN, Binding, Signature, SignatureError, check

MODULE: Final = "function_app"


@dataclass(frozen=True, kw_only=True)
class LoadedFunction:
    """A function of the app, checked and ready to be invoked."""

    name: str
    directory: Path
    call: Callable[..., Any]
    is_async: bool
    trigger: Binding
    bindings: tuple[Binding, ...]
    """The trigger among them."""
    signature: Signature
    retry_policy: RetryPolicy | None
    is_disabled: bool
    faults: tuple[str, ...] = ()
    """Why it cannot run though the rest of the app can, one sentence each."""

    @property
    def durable_name(self) -> str:
        """What the durable engine knows it by: the name that the trigger gives, or its own."""
        field = DURABLE_TRIGGERS.get(self.trigger.kind)
        return str(self.trigger.settings.get(field) or self.name) if field else self.name

    def bindings_of(self, kind: str) -> list[Binding]:
        """Its bindings of one kind."""
        return [binding for binding in self.bindings if binding.kind == kind]


@contextlib.contextmanager
def importable(app: Path) -> Generator[None]:
    """Put an app folder on the import path, and forget all of its modules afterwards."""
    packages = app / ".python_packages" / "lib" / "site-packages"
    added = [str(app), *([str(packages)] if packages.is_dir() else [])]
    before = dict(sys.modules)
    sys.path[:0] = added
    sys.modules.pop(MODULE, None)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for path in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(path)
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if before.get(name) is not module and file and Path(file).is_relative_to(app):
                del sys.modules[name]
        if MODULE in before:
            sys.modules[MODULE] = before[MODULE]


def load(
    app: Path, settings: Mapping[str, str], only: tuple[str, ...] = ()
) -> list[LoadedFunction]:
    """Import the app (see `importable`) and check each of its functions.

    As on Azure, a function that the worker refuses takes the whole app with it, since the worker
    then indexes nothing; one that only the host refuses (a setting that is missing, a kind of
    binding that is not there) is loaded with its `faults`, and the others run.

    Args:
        app: the app's folder, absolute.
        settings: app settings, for `%NAME%` and `AzureWebJobs.NAME.Disabled`.
        only: the functions to load, empty for all of them.

    Raises:
        AppLoadError: it cannot be imported, or functions do not fit their bindings; names all
            of these at once.
    """
    register = _find_register(_import_app(app), app)
    try:
        indexed: list[Function] = register.get_functions()
    except Exception as error:  # whatever the SDK finds wrong with the author's decorators
        raise AppLoadError(f"{app / (MODULE + '.py')}: {error}") from error
    functions: list[LoadedFunction] = []
    faults: list[str] = []
    for function in indexed:
        try:
            functions.append(_load_function(function, app, settings))
        except SignatureError as error:
            faults.append(f"cannot load the function {function.get_function_name()}: {error}")
    if faults:
        raise AppLoadError("\n".join(faults))
    selected = {name.lower() for name in only}
    return [one for one in functions if not selected or one.name.lower() in selected]


def _import_app(app: Path) -> Any:
    path = app / f"{MODULE}.py"
    if not path.is_file():
        raise AppLoadError(
            f"no {path.name} in {app}: this host runs apps of the Python v2 programming model"
        )
    try:
        return importlib.import_module(MODULE)
    except Exception as error:  # whatever the author's code raises
        raise AppLoadError(f"importing {path} failed:\n{_users_traceback(error, app)}") from error


def _users_traceback(error: BaseException, app: Path) -> str:
    """The traceback from the app's first frame on; what leads there is no concern of its author."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next(
        (index for index, frame in enumerate(frames) if Path(frame.filename).is_relative_to(app)),
        len(frames),
    )
    lines = traceback.format_list(frames[first:]) + traceback.format_exception_only(error)
    return "".join(lines).rstrip()


def _find_register(module: Any, app: Path) -> azure.functions.FunctionRegister:
    registers = {
        id(value): value
        for value in vars(module).values()
        if isinstance(value, azure.functions.FunctionRegister)
    }
    if len(registers) != 1:
        found = "no FunctionApp" if not registers else f"{len(registers)} FunctionApps"
        raise AppLoadError(
            f"{app / (MODULE + '.py')} has {found} at its top level, it needs exactly one; "
            "put further functions into a Blueprint and register that"
        )
    return next(iter(registers.values()))


def _load_function(function: Function, app: Path, settings: Mapping[str, str]) -> LoadedFunction:
    name = str(function.get_function_name())
    call = function.get_user_function()
    faults: list[str] = []
    bindings = [_read_binding(raw, settings, faults) for raw in function.get_raw_bindings()]
    trigger_name = getattr(function.get_trigger(), "name", None)
    (trigger,) = (one for one in bindings if one.name == trigger_name and not one.is_output)
    signature = check(call, bindings)
    faults += [fault for one in bindings if (fault := _uncovered(one, trigger))]
    retry_policy = None
    if retry := function.get_settings_dict("retry_policy"):
        try:
            retry_policy = RetryPolicy.parse(retry)
        except ValueError as error:
            faults.append(str(error))
    return LoadedFunction(
        name=name,
        directory=app,
        call=call,
        is_async=inspect.iscoroutinefunction(call),
        trigger=trigger,
        bindings=tuple(bindings),
        signature=signature,
        retry_policy=retry_policy,
        is_disabled=is_disabled(name, settings),
        faults=tuple(faults),
    )


def _read_binding(raw: str, settings: Mapping[str, str], faults: list[str]) -> Binding:
    """A binding with its app settings resolved; those that are not set are added to the faults."""
    document: dict[str, Any] = json.loads(raw)
    direction = document["direction"]
    name, kind = document["name"], document["type"]
    if direction == "INOUT":
        raise SignatureError(f"{name} has the direction inout, which Python does not support")
    if name == RETURN and direction != "OUT":
        raise SignatureError("the $return binding must have the direction out")
    for key, value in document.items():
        if isinstance(value, str):
            try:
                document[key] = resolve_references(value, settings)
            except ValueError as error:
                faults.append(f"{key} of {name}: {error}")
    return Binding(name, kind, direction == "OUT", document)


def _uncovered(binding: Binding, trigger: Binding) -> str | None:
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
