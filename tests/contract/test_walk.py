"""The walks of docs/architecture.md lead through the code, hop by hop."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from handlers.platform.settings import APP_FOLDER
from orchestrations.platform.activities import ACTIVITIES

STOPS_LIMIT = 22
PAGE = (APP_FOLDER / "docs" / "architecture.md").read_text("utf-8")
WALKS = ("From a blob to its notification", "From a model to its traffic")
ORCHESTRATORS = ("landing", "freezing", "forgetting", "retraining", "promotion", "rollout")

Place = tuple[str, str]
"""Module, and the name of a function, class or constant in it."""


def section(heading: str) -> str:
    (text,) = re.findall(rf"^## {heading}\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    return text


def stops(heading: str) -> list[Place]:
    found = re.findall(r"^\d+\. `([\w/]+)\.py:(\w+)`", section(heading), re.MULTILINE)
    return [(file.replace("/", "."), name) for file, name in found]


@functools.cache
def modules() -> dict[str, ast.Module]:
    files = [APP_FOLDER / "function_app.py"]
    files += [
        f for folder in ("handlers", "orchestrations") for f in (APP_FOLDER / folder).rglob("*.py")
    ]

    def name(file: Path) -> str:
        return ".".join(file.relative_to(APP_FOLDER).with_suffix("").parts)

    return {name(file): ast.parse(file.read_text("utf-8")) for file in files}


@functools.cache
def definitions() -> dict[Place, ast.stmt]:
    """What stands at the top of each module."""
    found: dict[Place, ast.stmt] = {}
    for module, tree in modules().items():
        for each in tree.body:
            match each:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    found[module, each.name] = each
                case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                    found[module, name] = each
                case _:
                    pass
    return found


@functools.cache
def imports(module: str) -> dict[str, Place]:
    """Local name → what a module imports under it, anywhere in it."""
    return {
        alias.asname or alias.name: (each.module, alias.name)
        for each in ast.walk(modules()[module])
        if isinstance(each, ast.ImportFrom) and each.module
        for alias in each.names
    }


@functools.cache
def bodies_of_activities() -> dict[str, Place]:
    found: dict[str, Place] = {}
    for (module, name), node in definitions().items():
        if (
            name in ACTIVITIES
            and module.startswith("handlers.")
            and isinstance(node, ast.FunctionDef)
        ):
            found[name] = (module, name)
    return found


@functools.cache
def triggers() -> dict[str, Place]:
    """The functions of function_app by their queues; and orchestrators by their names."""
    found = {
        name: place
        for place in definitions()
        if (name := place[1]) in ORCHESTRATORS and place[0].startswith("orchestrations.")
    }
    for each in modules()["function_app"].body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in each.decorator_list:
                for keyword in getattr(decorator, "keywords", []):
                    if keyword.arg == "queue_name":
                        found[keyword.value.value] = ("function_app", each.name)
    return found


REQUESTS = {request.__name__: name for name, request in ACTIVITIES.items()}


def mentioned(place: Place) -> Iterator[Place]:
    """What the code at a place names: by import, in the same module, as activity or by queue."""
    module, _ = place
    for node in ast.walk(definitions()[place]):
        target: Place | None = None
        if isinstance(node, ast.Name):
            target = imports(module).get(node.id, (module, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package, name = imports(module).get(node.value.id, ("", ""))
            target = (f"{package}.{name}", node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            target = triggers().get(node.value)
        if target is not None and target[1] in REQUESTS:
            target = bodies_of_activities()[REQUESTS[target[1]]]
        if target is not None and target in definitions():
            yield target


def hops(place: Place) -> set[Place]:
    """What a place leads to: what it names, directly or by other code of its own module."""
    seen, waiting, found = {place}, [place], set[Place]()
    while waiting:
        here = waiting.pop()
        for target in mentioned(here):
            found.add(target)
            is_constant = isinstance(definitions()[target], ast.Assign | ast.AnnAssign)
            if target not in seen and (target[0] == place[0] or is_constant):
                seen.add(target)
                waiting.append(target)
    return found


def activities_of(orchestrator: Place) -> set[str]:
    """The activities that an orchestrator's code names, in all modules of `orchestrations`."""
    bodies = {body: name for name, body in bodies_of_activities().items()}
    seen, waiting, found = {orchestrator}, [orchestrator], set[str]()
    while waiting:
        for target in mentioned(waiting.pop()):
            if target in bodies:
                found.add(bodies[target])
            elif target not in seen and target not in triggers().values():
                seen.add(target)
                waiting.extend([target] * target[0].startswith("orchestrations."))
    return found


@pytest.mark.parametrize("heading", WALKS)
def test_every_stop_follows_from_one_before(heading: str) -> None:
    walk = stops(heading)
    assert walk
    for number, stop in enumerate(walk[1:], 1):
        assert any(stop in hops(before) for before in walk[:number]), f"nothing leads to {stop}"


@pytest.mark.parametrize("heading", WALKS)
def test_a_walk_is_short_and_visits_no_stop_twice(heading: str) -> None:
    assert len(set(stops(heading))) == len(stops(heading)) <= STOPS_LIMIT


@pytest.mark.parametrize("orchestrator", ORCHESTRATORS)
def test_every_activity_of_an_orchestrator_is_named(orchestrator: str) -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (`.*`) \|$", section("The activities of each orchestrator"), re.MULTILINE
    )
    named = {row[0]: re.findall(r"\w+", row[1]) for row in rows}
    assert named[orchestrator] == sorted(activities_of(triggers()[orchestrator]))
