"""Shell completion of commands in bash, installed as in docs/operators.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from handlers.configuration.settings import APP_FOLDER

BASH = shutil.which("bash")
PAGE = (APP_FOLDER / "docs" / "operators.md").read_text("utf-8")


@pytest.mark.skipif(BASH is None, reason="no bash here")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [("dead", ["dead-letters"]), ("runs c", ["cancel"]), ("runs list --pip", ["--pipeline"])],
)
def test_bash_completes_commands_and_options(
    tmp_path: Path, typed: str, expected: list[str]
) -> None:
    scripts = tmp_path / ".local" / "bin"
    scripts.mkdir(parents=True)
    made = re.findall(r"^\$ ((?:printf|chmod) .*)$", PAGE, re.MULTILINE)
    words = ["landfall", *typed.split()]
    lines = [
        *made,
        'eval "$(landfall --show-completion bash)"',
        f"COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}",
        "_landfall_completion landfall",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    python = Path(sys.executable).parent
    ended = subprocess.run(
        [str(BASH), "-ec", "\n".join(lines)],
        cwd=APP_FOLDER,
        env={"HOME": str(tmp_path), "PATH": f"{scripts}:{python}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == expected
