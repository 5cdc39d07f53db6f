"""Runs the wheel with every supported version of the SDKs: `make conformance`.

Each version is installed in its own environment. There the replay shortcut is compared with the SDK
(`PROVED_VERSIONS` lists the versions on which they agree), and the host runs `app/`, with the
shortcut if it is used for that version. The results are written to localazure/docs/sdk-versions.md.

In localazure/tests: `python -m conformance [--only DURABLE] [--write]`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance import scenarios
from harness.child_process import REPOSITORY
from harness.wheel import Installed, build_wheel, started
from localazure.functions.worker.orchestrators import PROVED_VERSIONS

PAGE: Final = REPOSITORY / "localazure" / "docs" / "sdk-versions.md"
APP: Final = Path(__file__).parent / "app"
SHORT_CUT_TEST: Final = Path(__file__).parents[1] / "unit/functions/worker/test_replay_shortcut.py"

LATEST_FUNCTIONS: Final = "1.26.0"
LATEST_DURABLE: Final = "1.7.0"
# Every release since 1.2.9.
DURABLE: Final = ("1.2.9", "1.2.10", "1.3.1", "1.3.2", "1.3.3", "1.4.0", "1.5.0", "1.6.0", "1.7.0")
# The latest release of every minor version since 1.18.
FUNCTIONS: Final = (
    *("1.18.0", "1.19.0", "1.20.0", "1.21.3", "1.22.1", "1.23.0", "1.24.0", "1.25.0", "1.26.0"),
)
PAIRS: Final = (
    *((durable, LATEST_FUNCTIONS) for durable in DURABLE),
    *((LATEST_DURABLE, functions) for functions in FUNCTIONS if functions != LATEST_FUNCTIONS),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """A row of the table."""

    durable: str
    functions: str
    requires_python: str
    short_cut_agrees: bool
    failures: tuple[str, ...]


def examine(durable: str, functions: str, wheel: Path, folder: Path) -> Result:
    """Install one pair of versions; run the comparison and all scenarios."""
    installed = Installed(folder / "venv")
    installed.install(
        f"{wheel}",
        f"azure-functions-durable=={durable}",
        f"azure-functions=={functions}",
        *("pytest", "hypothesis"),
        without_pins=("azure-functions", "azure-functions-durable"),
    )
    requires = installed.metadata(
        "print(*(m['Requires-Python'] or 'any' for m in map(metadata.metadata, "
        "['azure-functions-durable', 'azure-functions'])), sep=', ')"
    )
    compared = subprocess.run(
        [installed.python, "-m", "pytest", "-q", "-c", "/dev/null", "--noconftest", SHORT_CUT_TEST],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    app = folder / "app"
    shutil.copytree(APP, app)
    failures: list[str] = []
    with started(installed, app, folder / "host.log") as host:
        for name in scenarios.SCENARIOS:
            try:
                scenarios.run(name, host)
            except Exception as error:  # noqa: BLE001 - any error is a result
                failures.append(name)
                print(f"{durable} {functions} {name}: {error}", file=sys.stderr)
    if compared.returncode:
        print((compared.stdout + compared.stderr)[-2000:], file=sys.stderr)
    return Result(
        durable=durable,
        functions=functions,
        requires_python=requires,
        short_cut_agrees=compared.returncode == 0,
        failures=tuple(failures),
    )


def table(results: list[Result]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| azure-functions-durable | azure-functions | their Python | app | replay |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        app = f"fails: {', '.join(result.failures)}" if result.failures else "passes"
        way = "short cut" if result.durable in PROVED_VERSIONS else "the SDK's own"
        lines.append(
            f"| {result.durable} | {result.functions} | {result.requires_python} | {app} | {way} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Return 1 if a version fails, or if `PROVED_VERSIONS` is wrong."""
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--only", metavar="DURABLE", help="this version of azure-functions-durable")
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.name}")
    parsed: Any = parser.parse_args()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch) / "dist")
        for number, (durable, functions) in enumerate(PAIRS):
            if parsed.only in (None, durable):
                folder = Path(scratch) / str(number)
                folder.mkdir()
                results.append(examine(durable, functions, wheel, folder))
                print(results[-1], flush=True)
                shutil.rmtree(folder)
    print(table(results))
    if parsed.write:
        head, _, _ = PAGE.read_text().partition("| azure-functions-durable |")
        PAGE.write_text(f"{head}{table(results)}\n")
    wrong = {
        result.durable
        for result in results
        if result.short_cut_agrees != (result.durable in PROVED_VERSIONS)
    }
    if wrong:
        print(f"PROVED_VERSIONS is not what was found for {', '.join(sorted(wrong))}")
    return int(bool(wrong) or any(result.failures for result in results))


if __name__ == "__main__":
    sys.exit(main())
