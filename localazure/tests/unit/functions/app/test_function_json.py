"""The programming model v1: folders with a function.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from localazure.functions.app.loader import LoadedFunction, importable, load
from localazure.functions.errors import AppLoadError

HTTP = ({"name": "req", "type": "httpTrigger", "direction": "in", "authLevel": "anonymous"},)
RETURN = {"name": "$return", "type": "http", "direction": "out"}
SCRIPT = "def main(req): ..."


def write(app: Path, name: str, script: str = SCRIPT, **document: Any) -> None:
    folder = app / name
    folder.mkdir()
    script_name = Path(document.get("scriptFile", "__init__.py")).name
    (folder / script_name).write_text(script)
    (folder / "function.json").write_text(json.dumps({"bindings": HTTP, **document}))


def load_all(app: Path, **settings: str) -> dict[str, LoadedFunction]:
    with importable(app):
        return {function.name: function for function in load(app, settings)}


def fault(app: Path, script: str = SCRIPT, **document: Any) -> str:
    write(app, "broken", script, **document)
    write(app, "fine")
    functions = load_all(app)
    assert functions["fine"].faults == ()
    return "; ".join(functions["broken"].faults)


def test_a_function_a_folder(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "words.py").write_text("WORD = 'shared'")
    write(
        tmp_path,
        "Hello",
        "from ..shared.words import WORD\n"
        "from __app__.shared import words\n"
        "import shared.words\n"
        "import azure.functions as func\n"
        "def main(req: func.HttpRequest, context: func.Context) -> str:\n    return WORD\n",
        bindings=[*HTTP, RETURN],
    )
    write(
        tmp_path,
        "tick",
        "async def run(timer): ...",
        scriptFile="job.py",
        entryPoint="run",
        disabled=True,
        bindings=[{"name": "timer", "type": "timerTrigger", "schedule": "%WHEN%"}],
        retry={"strategy": "fixedDelay", "maxRetryCount": 4, "delayInterval": "00:00:10"},
    )
    write(tmp_path, "left_out", excluded=True)
    functions = load_all(tmp_path, WHEN="0 * * * * *")
    assert sorted(functions) == ["Hello", "tick"]
    hello, tick = functions["Hello"], functions["tick"]
    assert hello.call(req=None, context=None) == "shared"
    assert hello.directory == tmp_path / "Hello"
    assert hello.signature.takes_context
    assert hello.signature.result is not None
    assert tick.is_async
    assert tick.is_disabled
    assert tick.trigger.settings["schedule"] == "0 * * * * *"
    assert tick.retry_policy is not None
    assert tick.retry_policy.max_retry_count == 4
    assert not [name for name in sys.modules if name.startswith(("__app__", "shared"))]


@pytest.mark.parametrize(
    ("script", "document", "message"),
    [
        ("import no_such_module", {}, "No module named 'no_such_module'"),
        ("main = 1", {}, "function main() is not present in"),
        ("def main(other): ...", {}, "the parameters other are declared in Python but bound"),
        (SCRIPT, {"scriptFile": "x/x.py"}, "no x/x.py in"),
        (SCRIPT, {"bindings": [RETURN]}, "No trigger binding specified."),
        (SCRIPT, {"bindings": [*HTTP, *HTTP]}, "Multiple trigger bindings defined."),
        (SCRIPT, {"bindings": [{"type": "httpTrigger"}]}, "bindings[0]: 'name' is missing"),
        (
            SCRIPT,
            {"bindings": [{"name": "req", "type": "cosmosDBTrigger"}]},
            "of the kind cosmosDBTrigger, which this host does not cover",
        ),
    ],
)
def test_a_function_that_is_wrong_leaves_the_others_alone(
    tmp_path: Path, script: str, document: dict[str, Any], message: str
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    text = fault(app, script, **document)
    assert message in text
    assert "localazure" not in text.replace(str(tmp_path), "")


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    write(tmp_path, "broken")
    (tmp_path / "broken" / "function.json").write_text("{")
    (function,) = load_all(tmp_path).values()
    assert "function.json" in function.faults[0]


def test_a_folder_without_functions_is_no_app(tmp_path: Path) -> None:
    with importable(tmp_path), pytest.raises(AppLoadError, match="no folder with a function"):
        load(tmp_path, {})


def test_decorators_win(tmp_path: Path) -> None:
    write(tmp_path, "Hello")
    (tmp_path / "start.py").write_text("import azure.functions as func\napp = func.FunctionApp()")
    assert load_all(tmp_path, PYTHON_SCRIPT_FILE_NAME="start.py") == {}
