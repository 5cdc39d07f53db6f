"""Runs Microsoft's tests with Azurite as released and with localazure: `make conformance-storage`.

`azurite` are Azurite's own. The sources are cloned from GitHub at the tag of the pinned version
into the user's cache, or come from a checkout of it that AZURITE_SOURCE names. Only their `tests`
are used: these start Azurite in their own process from `../src`, which here is the npm package. So
two runs of a file differ only in the scripts of `localazure/storage/azurite/`, which are preloaded
in one of them. The packages that the tests import come from npm, in the versions of the sources'
lock file. They listen on the ports 11000 to 11002. Two busy cores took an hour for all of them.

`sdks` are the tests of Microsoft's Python SDKs: see `python_sdks.py`.

A test that passes as released must pass here, in one of three tries: some depend on time. Six tests
of CORS are an exception (`REFUSED_HERE`).

In localazure/tests: `python -m conformance.storage [--source FOLDER] [--only REGEX] [SUITE ...]`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

from conformance.storage import python_sdks
from conformance.storage.outcome import Outcome
from localazure.storage.azurite_installation import PACKAGE, Installation, cache_folder, find_node
from localazure.storage.azurite_process import PRELOADED

REPOSITORY: Final = "https://github.com/Azure/Azurite"
SERVICES: Final = ("blob", "queue", "table")
# Azurite's store in SQL servers: localazure has none, and `unused_packages.js` omits its package.
NOT_RUN: Final = "sqlBlobMetadataStore"
TOOLS: Final = ("mocha", "ts-node", "typescript")
COMPILER: Final = {
    "module": "commonjs",
    "moduleResolution": "node10",
    "ignoreDeprecations": "6.0",
    "target": "ES2020",
    "esModuleInterop": True,
    "rootDir": ".",
}
CHANGES: Final = tuple(f"--require={PACKAGE / name}" for name in PRELOADED)
# Azure answers a web page that no CORS rule allows without CORS headers; here it is refused, since
# every page knows the key of the emulators' account (`web_pages.js`).
REFUSED_HERE: Final = re.compile(r"(without|with mismatching) cors rules should")
FILE_SECONDS: Final = 900
_IMPORTED: Final = re.compile(r"""(?:from|require\()\s*["']((?:@[^/"']+/)?[^."'/][^"'/]*)""")


def install(folder: Path, source: Path) -> None:
    """Put the tests, Azurite and the packages that they import into a folder."""
    shutil.rmtree(folder / "tests", ignore_errors=True)
    others = shutil.ignore_patterns("upgrade", "eslintConfig.test.ts")  # for VS Code, and a linter
    shutil.copytree(source / "tests", folder / "tests", ignore=others)
    locked = json.loads((source / "package-lock.json").read_text())["packages"]
    imported = {*TOOLS}.union(
        *(_IMPORTED.findall(path.read_text()) for path in (folder / "tests").rglob("*.ts"))
    )
    versions = {name: locked.get(f"node_modules/{name}") for name in sorted(imported)}
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PACKAGE / name, folder)
    command = ["npm", "install", "--ignore-scripts", "--silent", "--no-audit", "--no-fund"]
    packages = [f"{name}@{found['version']}" for name, found in versions.items() if found]
    subprocess.run([*command, *packages], cwd=folder, check=True)
    azurite = folder / "node_modules" / "azurite" / "dist" / "src"
    (folder / "src").unlink(missing_ok=True)
    (folder / "src").symlink_to(azurite)
    # The scripts find Azurite beside the script that node runs.
    mocha = json.dumps(str(folder / "node_modules" / "mocha" / "bin" / "mocha.js"))
    (azurite / "mocha.js").write_text(f"require({mocha});\n")


def run(folder: Path, file: str, changes: tuple[str, ...]) -> Outcome:
    """Run a file of tests, from an empty state."""
    for left in folder.glob("__*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    mocha = [
        *(find_node(), *changes, folder / "src" / "mocha.js", "--require", "ts-node/register"),
        *("--no-timeouts", "--exit", "--reporter", "json", "--reporter-option", f"output={report}"),
        file,
    ]
    variables = {
        "NODE_TLS_REJECT_UNAUTHORIZED": "0",
        "NODE_NO_WARNINGS": "1",
        "TS_NODE_TRANSPILE_ONLY": "1",
        "TS_NODE_SKIP_PROJECT": "1",
        "TS_NODE_COMPILER_OPTIONS": json.dumps(COMPILER),
    }
    try:
        output = subprocess.run(
            mocha,
            cwd=folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=FILE_SECONDS,
        ).stdout
    except subprocess.TimeoutExpired:
        output = f"it did not end within {FILE_SECONDS} s"
    if not report.exists():
        return Outcome(failed={f"{file}: the file": output[-1000:]})
    results: dict[str, list[dict[str, Any]]] = json.loads(report.read_text())

    def titles(kind: str) -> list[str]:
        return [f"{file}: {test['fullTitle']}" for test in results[kind]]

    errors = (test["err"].get("message", "") for test in results["failures"])
    return Outcome(Counter(titles("passes")), dict(zip(titles("failures"), errors, strict=True)))


def outcomes(source: Path | None, only: str) -> Generator[tuple[str, Outcome, Outcome]]:
    """For each service the outcomes of Azurite's own tests as released and as changed."""
    version = Installation.find().version
    folder = cache_folder(os.environ) / f"conformance-storage-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    source = source or folder / "sources"
    if not source.exists():
        clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1"]
        subprocess.run([*clone, "--branch", f"v{version}", REPOSITORY, source], check=True)
    found = json.loads((source / "package.json").read_text())["version"]
    if found != version:
        sys.exit(f"{source} is Azurite {found}; localazure uses {version}")
    install(folder, source)
    for service in SERVICES:
        there, here = Outcome(), Outcome()
        for path in sorted((folder / "tests" / service).rglob("*.test.ts")):
            file = str(path.relative_to(folder))
            if re.search(only, file) and NOT_RUN not in file:
                print(file, file=sys.stderr)
                released, changed = run(folder, file, ()), run(folder, file, CHANGES)
                changed.retry(released, lambda _tests, _try, f=file: run(folder, f, CHANGES))
                for side, added in ((there, released), (here, changed)):
                    side.passed += added.passed
                    side.failed |= added.failed
        yield service, there, here


def main() -> int:
    """Return 1 if a test passes with Azurite as released and fails with localazure."""
    parser = argparse.ArgumentParser(prog="python -m conformance.storage", description=__doc__)
    parser.add_argument("--source", type=Path, metavar="FOLDER", help="a checkout of Azurite")
    parser.add_argument("--only", default="", metavar="REGEX", help="found in the path of a file")
    parser.add_argument("suites", nargs="*", choices=("azurite", "sdks"), metavar="SUITE")
    parsed = parser.parse_args()
    suites = {
        "azurite": lambda: outcomes(parsed.source, parsed.only),
        "sdks": lambda: python_sdks.outcomes(parsed.only),
    }
    rows = ["| tests | pass as released | fail | pass here | fail |", "|---|---|---|---|---|"]
    worse: list[str] = []
    for suite in parsed.suites or suites:
        for name, there, here in suites[suite]():
            counts = (f"{each.passed.total()} | {len(each.failed)}" for each in (there, here))
            rows.append(f"| {name} | {' | '.join(counts)} |")
            print(rows[-1], file=sys.stderr)
            worse += [
                f"{test}\n  {here.failed.get(test)}"
                for test in there.passed - here.passed
                if not REFUSED_HERE.search(test)
            ]
            if not there.passed and not parsed.only:
                worse.append(f"{name}: no test passes as released")
            for test, error in there.failed.items():
                print(f"fails as released: {test}\n  {error}")
    verdict = "pass only as released:" if worse else "all that pass as released pass here"
    print(*rows, verdict, *worse, sep="\n")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
