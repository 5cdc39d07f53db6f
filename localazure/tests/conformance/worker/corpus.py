"""The apps and calls for both workers, made of the tables in corpus.toml."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_TABLES: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_OVER_HTTP: Final = (("HEAD", ""), ("GET", ""), ("POST", "b"))


def apps() -> Iterator[dict[str, Any]]:
    """Each app: its name, files, app settings and calls."""
    for group in _TABLES["group"]:
        cases = group.get("cases", [""])
        cases = _TABLES["values"][cases] if isinstance(cases, str) else cases
        for variant in group.get("variants", [""]):
            name = f"{group['name']}{variant and ' '}{variant}"
            if group.get("together"):
                yield _app(group, name, variant, {f"f{n}": case for n, case in enumerate(cases)})
            else:
                for case in cases:
                    yield _app(group, f"{name}: {case}", variant, {"f": case})


def _app(
    group: dict[str, Any], name: str, variant: str, functions: dict[str, str]
) -> dict[str, Any]:
    settings = {group["setting"]: functions["f"]} if "setting" in group else {}
    script = settings.get("PYTHON_SCRIPT_FILE_NAME", "function_app.py")
    parts = [_TABLES["headers"][group.get("header", "functions")]]
    calls = list[dict[str, Any]]()
    for function, case in functions.items():
        text = group["template"].replace("$variant", variant)
        parts.append(text.replace("$case", case).replace("$name", function))
        called = group.get("function", function).replace("$case", case)
        calls += [{"case": case, "function": called, **call} for call in _calls(group, function)]
    files = {script: "\n".join(parts)} if script and "/" not in script else {}
    return {"name": name, "files": files, "settings": settings, "calls": calls}


def _calls(group: dict[str, Any], function: str) -> Iterator[dict[str, Any]]:
    if group.get("web"):
        path = f"/api/{function}?q=1"
        web = [{"method": method, "path": path, "body": body} for method, body in _OVER_HTTP]
        yield {"web": web, "metadata": {}, "trace": _TABLES["trace"]}
        return
    inputs = group.get("inputs", [{"req": ["http", {}]}])
    metadata = [group["metadata"], {}] if "metadata" in group else [{}]
    for given, data in itertools.product(inputs, metadata):
        values = {name: _value(value) for name, value in given.items()}
        yield {"inputs": values, "metadata": data, "trace": _TABLES["trace"]}


def _value(value: list[Any]) -> list[Any] | None:
    if value and value[0] == "http":
        return ["http", {**_TABLES["request"], **value[1]}]
    return value or None
