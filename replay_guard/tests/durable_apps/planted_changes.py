"""Plants one change of each kind in the source of any Durable app, through its syntax tree."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

CALLS = frozenset({"call_activity", "call_activity_with_retry", "call_sub_orchestrator"})
ORDERED_CALLS = CALLS | {"call_entity"}
RENAMED = "_renamed"


def plant(kind: str, app: Path, orchestrator: str) -> None:
    """Change one orchestrator of an app.

    Args:
        kind: a key of `KINDS`, or "version".
        app: the app's folder, which is changed.
        orchestrator: the name of its function.

    Raises:
        LookupError: it has nothing of that kind to change.
    """
    if kind == "version":
        _release_next_version(app / "host.json")
        return
    for file in sorted(app.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        for function in _orchestrators(tree, orchestrator):
            if KINDS[kind](function):
                file.write_text(ast.unparse(ast.fix_missing_locations(tree)))
                return
    raise LookupError(f"{orchestrator} in {app} has nothing for a change of {kind}")


def set_version(app: Path, version: str, **more: str) -> None:
    """Have an app's instances be of a version."""
    file = app / "host.json"
    # A published sample has a brace too many at the end of its file.
    document: dict[str, Any] = json.JSONDecoder().raw_decode(file.read_text("utf-8"))[0]
    durable = document.setdefault("extensions", {}).setdefault("durableTask", {})
    durable |= {"defaultVersion": version, **more}
    file.write_text(json.dumps(document))


def _release_next_version(file: Path) -> None:
    """The app runs no instances of the version before."""
    set_version(file.parent, "2.0", versionMatchStrategy="Strict")


def _orchestrators(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    """The generator function: the registered one, or `_<name>`, whose generator it returns."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name in (name, f"_{name}")
            and any(isinstance(each, ast.Yield) for each in ast.walk(node))
        ):
            yield node


def _calls(function: ast.FunctionDef, names: frozenset[str]) -> list[ast.Call]:
    found = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
    ]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _rename(function: ast.FunctionDef) -> bool:
    for call in _calls(function, CALLS):
        given = call.args[0] if call.args else _keyword(call, "name").value
        name = given.value if isinstance(given, ast.Constant) else ast.unparse(given)
        renamed = ast.Constant(f"{name}{RENAMED}")
        if call.args:
            call.args[0] = renamed
        else:
            _keyword(call, "name").value = renamed
        return True
    return False


def _keyword(call: ast.Call, name: str) -> ast.keyword:
    return next(each for each in call.keywords if each.arg == name)


def _reorder(function: ast.FunctionDef) -> bool:
    """Swap the first two calls that differ."""
    calls = _calls(function, ORDERED_CALLS)
    for first, second in itertools.pairwise(calls):
        if ast.dump(first) != ast.dump(second):
            first.args, second.args = second.args, first.args
            first.keywords, second.keywords = second.keywords, first.keywords
            return True
    return False


def _give_other_input(function: ast.FunctionDef) -> bool:
    for call in _calls(function, CALLS):
        keyword = next((each for each in call.keywords if each.arg == "input_"), None)
        if keyword is not None:
            keyword.value = _changed(keyword.value)
        elif len(call.args) > 1:
            call.args[-1] = _changed(call.args[-1])
        else:
            call.args.append(ast.Constant("changed"))
        return True
    return False


def _changed(value: ast.expr) -> ast.expr:
    return ast.List([ast.Constant("changed"), value], ast.Load())


def _change_timer(function: ast.FunctionDef) -> bool:
    """An hour later; where there is no timer, a new one before everything else."""
    for call in _calls(function, frozenset({"create_timer"})):
        later = ast.parse("__import__('datetime').timedelta(hours=1)", mode="eval").body
        call.args[0] = ast.BinOp(call.args[0], ast.Add(), later)
        return True
    context = function.args.args[0].arg
    timer = f"yield {context}.create_timer({context}.current_utc_datetime)"
    function.body.insert(0, ast.parse(timer).body[0])
    return True


KINDS: Mapping[str, Callable[[ast.FunctionDef], bool]] = {
    "name": _rename,
    "order": _reorder,
    "input": _give_other_input,
    "timer": _change_timer,
}
"""Kind of change → what makes it; False: the function has nothing to change."""
