"""Compares our worker with Microsoft's, on one corpus of small apps: `make conformance-worker`.

Both (`oracle.py`, `ours.py`) index and invoke the apps of corpus.toml in one environment, made from
PyPI. The tests of Service Bus messages of the SDK's type run there, too: their extension takes
older packages than this repository, and so has no place in `make setup`.

Of a failure only that it is one is compared, since its text differs. The differences that stay are
in `REASONS` and, with `--write`, on the page of the Functions host.

In localazure/tests: `python -m conformance.worker PYTHON [--only APP] [--write]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from conformance.worker.corpus import apps
from harness.child_process import REPOSITORY
from harness.wheel import Installed, build_wheel

ORACLE: Final = "azure-functions-runtime==1.3.0"
EXTENSIONS: Final = (
    "azurefunctions-extensions-http-fastapi==1.0.1",
    "azurefunctions-extensions-bindings-servicebus==1.0.0b2",
)
OLDER: Final = ("protobuf", "grpcio")
"""Packages of which the extension for Service Bus takes older versions than this repository."""
PAGE: Final = REPOSITORY / "localazure" / "docs" / "functions-host.md"
TYPES: Final = "local/functions/test_service_bus_types.py"
SETTINGS: Final = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
HEAD: Final = "| Microsoft's worker | this worker | why |\n|---|---|---|\n"

REASONS: Final[dict[str, str]] = {
    "context* | type(context).__name__": "| the class of `context` is `Context` "
    "| `InvocationContext` | a name; neither is an `azure.functions.Context` |",
    "spans' parent def: *": "| `PYTHON_ENABLE_OPENTELEMETRY` has no effect on functions without "
    "`async` | it has | as in the worker of Python 3.12 |",
    "responds | *status_code='many'": "| a status that is no number goes to the host "
    "| the answer is 500, with the reason in the log | HTTP has no such status |",
    "responds | *'content-length'*": "| a function's `content-length` goes to the host "
    "| it is computed | a wrong one would break the connection |",
}
"""Pattern of `APP | CASE` → row of the page's table."""

Found = dict[str, Any]


def run(worker: str, python: Path, corpus: list[Found]) -> list[Found]:
    """The results of one worker, one for each app."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TZ": "UTC"}
    ended = subprocess.run(
        [python, "-m", f"conformance.worker.{worker}"],
        input="".join(json.dumps(app) + "\n" for app in corpus),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the workers' logs
        text=True,
        check=True,
        env=environment,
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


def differences(app: Found, theirs: Found, ours: Found) -> Iterator[tuple[str, Any, Any]]:
    """The differences of one app, each as its case and the two results."""
    loads = [one.get("load", {"fails": "the worker ends"}) for one in (theirs, ours)]
    if loads[0] != loads[1] and not all("fails" in one for one in loads):
        yield "loading", *loads
        return
    if "threads" in ours and theirs.get("threads") != ours["threads"]:
        yield "threads", theirs.get("threads"), ours["threads"]
    pairs = zip(theirs.get("calls", []), ours.get("calls", []), strict=True)
    for call, (their, our) in zip(app["calls"], pairs, strict=False):
        if not ("fails" in their and "fails" in our) and their != our:
            yield call["case"], their, our


def compare(corpus: list[Found], theirs: list[Found], ours: list[Found]) -> bool:
    """Print the differences and counts; whether exactly those of `REASONS` are there."""
    unexplained, seen, unequal, calls = 0, set[str](), set[str](), [0, 0]
    for app, their, our in zip(corpus, theirs, ours, strict=True):
        calls[0] += len(our.get("calls", []))
        for case, *results in differences(app, their, our):
            name = f"{app['name']} | {case}"
            unequal.add(app["name"])
            calls[1] += case not in {"loading", "threads"}
            reasons = {pattern for pattern in REASONS if fnmatchcase(name, pattern)}
            seen |= reasons
            if not reasons:
                unexplained += 1
                print(name, *results, sep="\n    ")
    same = (
        f"{len(corpus) - len(unequal)} the same, {calls[0]} calls, {calls[0] - calls[1]} the same"
    )
    print(f"{len(corpus)} apps, {same}, {unexplained} differences without a reason")
    return not unexplained


def run_tests(python: Path, settings: Path) -> bool:
    """Whether the tests of the SDK's types pass."""
    settings.write_text(SETTINGS)
    tests = Path(__file__).parents[2]
    options = ["-q", "-c", settings, "--confcutdir", tests, "--import-mode=importlib"]
    environment = {**os.environ, "PYTHONPATH": str(tests)}
    command = [python, "-m", "pytest", *options, tests / TYPES]
    return subprocess.run(command, check=False, env=environment).returncode == 0


def main() -> int:
    """Return 1 if there is a difference without a reason, or a test fails."""
    parser = argparse.ArgumentParser(prog="python -m conformance.worker", description=__doc__)
    parser.add_argument("python", help="an interpreter of Python 3.13 or later")
    parser.add_argument("--only", default="*", metavar="APP", help="apps of these names, with *")
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.name}")
    parsed: Any = parser.parse_args()
    if shutil.which(parsed.python) is None:
        print(
            f"there is no {parsed.python}, which {ORACLE} needs: WORKER_PYTHON names a Python 3.13"
        )
        return 1
    corpus = [app for app in apps() if fnmatchcase(app["name"], parsed.only)]
    with tempfile.TemporaryDirectory() as scratch:
        installed = Installed(Path(scratch) / "venv", parsed.python)
        wheel = str(build_wheel(Path(scratch)))
        tools = ("pytest", "pytest-asyncio")
        installed.install(wheel, ORACLE, *EXTENSIONS, *tools, without_pins=OLDER)
        with ThreadPoolExecutor() as pool:
            theirs = pool.submit(run, "oracle", installed.python, corpus)
            ours = run("ours", installed.python, corpus)
            is_explained = compare(corpus, theirs.result(), ours)
        passed = run_tests(installed.python, Path(scratch) / "pytest.ini")
    if parsed.write:
        before, _, rest = PAGE.read_text().partition(HEAD)
        _, _, after = rest.partition("\n\n")
        PAGE.write_text("\n".join([f"{before}{HEAD}".rstrip(), *REASONS.values(), "", after]))
    return int(not (is_explained and passed))


if __name__ == "__main__":
    sys.exit(main())
