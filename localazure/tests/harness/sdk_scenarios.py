"""The scenarios of azure-functions-durable's own tests, which are part of its wheel.

Each of these tests builds a history, lets the SDK run an orchestrator on it, and checks the answer.
They run unmodified; their inputs to the SDK are recorded.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from types import ModuleType
from typing import Any, Final
from unittest import mock

from azure.durable_functions import Orchestrator

DISTRIBUTION: Final = "azure-functions-durable"
_FOLDER: Final = "tests/orchestrator/"
# The functions of the SDK's test tools that run an orchestrator.
_RUNNERS: Final = ("get_orchestration_state_result", "get_orchestration_property")


@dataclass(frozen=True)
class Scenario:
    """A history, and the orchestrator that the SDK ran on it.

    Attributes:
        name: module and test of the SDK.
        document: the orchestrator-in document.
        orchestrator: the user's generator function.
        answer: the SDK's result, or the text of its exception.
    """

    name: str
    document: dict[str, Any]
    orchestrator: Callable[..., Any]
    answer: str


def scenarios() -> Iterator[Scenario]:
    """Yield all scenarios."""
    _make_importable()
    for name in _modules():
        module = importlib.import_module(name)
        for test_name, test in inspect.getmembers(module, inspect.isfunction):
            if test_name.startswith("test_"):
                for case, arguments in _cases(test):
                    yield from _record(module, test_name + case, partial(test, **arguments))


def _make_importable() -> None:
    """Merge the SDK's `tests` and ours into one package, because they have the same name."""
    package = importlib.import_module("tests")
    folder = str(metadata.distribution(DISTRIBUTION).locate_file("tests"))
    if folder not in package.__path__:
        package.__path__ = [*package.__path__, folder]


def _modules() -> list[str]:
    files = metadata.files(DISTRIBUTION) or []
    return sorted(
        str(file).removesuffix(".py").replace("/", ".")
        for file in files
        if str(file).startswith(f"{_FOLDER}test_") and str(file).endswith(".py")
    )


def _cases(test: Callable[..., None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parameters of a test from `pytest.mark.parametrize`, with pytest's ids."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        yield "", {}
        return
    (mark,) = marks
    names = [name.strip() for name in mark.args[0].split(",")]
    for number, values in enumerate(mark.args[1]):
        yield f"[{number}]", dict(zip(names, values, strict=True))


def _record(module: ModuleType, name: str, test: Callable[[], None]) -> list[Scenario]:
    found: list[Scenario] = []
    place = f"{module.__name__.rpartition('.')[2]}::{name}"

    def recording(runner: Callable[..., Any]) -> Callable[..., Any]:
        def run(builder: Any, user_code: Any, *arguments: Any, **options: Any) -> Any:
            decorated = getattr(user_code, "_function", None)  # a decorated function of an app
            function = decorated._func.orchestrator_function if decorated else user_code
            found.append(
                Scenario(
                    name=f"{place}[{len(found)}]" if found else place,
                    document=builder.to_json(),
                    orchestrator=function,
                    answer=answer_of(Orchestrator.create(function), builder.to_json_string()),
                )
            )
            return runner(builder, user_code, *arguments, **options)

        return run

    patches = {
        runner: recording(getattr(module, runner)) for runner in _RUNNERS if hasattr(module, runner)
    }
    with mock.patch.dict(vars(module), patches), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK warns about its own codec
        test()
    return found


def answer_of(function: Callable[..., str], *arguments: Any, **named: Any) -> str:
    """Return the result of an orchestrator's function, or its error as text."""
    try:
        return function(*arguments, **named)
    except Exception as error:  # noqa: BLE001 - the SDK raises Exception itself
        return str(error)
