"""The wheels of the tools, each in an environment with what it requires and an empty HOME."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.wheel import Installed, build_wheel

NO_APP = "http://127.0.0.1:9"
MISTAKES = {
    "landfall": [
        ("runs list", 3, "set LANDFALL_URL and LANDFALL_KEY (or --url and --key)"),
        (f"--url {NO_APP} doctor", 3, f"{NO_APP} (from --url) does not answer"),
        ("check --app nowhere", 2, "'nowhere' does not exist"),
        ("check", 1, "Run this in an environment that has the app's requirements"),
    ],
    "replay-guard": [
        (f"export {NO_APP} --out histories", 2, "cannot be reached: <urlopen error"),
        ("check nowhere history.json", 2, "nowhere has no function_app.py"),
    ],
}
"""Command → arguments, exit status, what is said."""


@pytest.mark.parametrize(
    ("folder", "command"), [("landfall_cli", "landfall"), ("replay_guard", "replay-guard")]
)
def test_a_tool_works_alone_and_says_what_is_missing(
    tmp_path: Path, folder: str, command: str
) -> None:
    installed = Installed.by_links(tmp_path / "venv", build_wheel(tmp_path / "dist", folder))
    home = tmp_path / "home"
    home.mkdir()
    for arguments, status, said in [("--help", 0, f"Usage: {command}"), *MISTAKES[command]]:
        ended = subprocess.run(
            [installed.program(command), *arguments.split()],
            cwd=home,
            env={"HOME": str(home), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        shown = ended.stdout + ended.stderr
        assert ended.returncode == status, shown
        assert said.lower() in shown.lower()
        assert "Traceback" not in shown
