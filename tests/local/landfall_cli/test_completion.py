"""Shell completion of commands in bash, installed as in docs/operators.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from handlers.platform.settings import APP_FOLDER

BASH = shutil.which("bash")
PAGE = (APP_FOLDER / "docs" / "operators.md").read_text("utf-8")


EXAMPLES = [("dead", "dead-letters"), ("runs c", "cancel"), ("runs list --pip", "--pipeline")]
"""What is typed after `landfall`, and the completion of its last word."""


@pytest.mark.skipif(BASH is None, reason="no bash here")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    scripts = tmp_path / ".local" / "bin"
    scripts.mkdir(parents=True)
    made = re.findall(r"^\$ ((?:printf|chmod) .*)$", PAGE, re.MULTILINE)
    lines = [*made, 'eval "$(landfall --show-completion bash)"']
    for typed, _ in EXAMPLES:
        lines += [
            f"COMP_WORDS=(landfall {typed}) COMP_CWORD={len(typed.split())}",
            "_landfall_completion landfall",
            'echo "${COMPREPLY[@]}"',
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
    assert ended.stdout.splitlines() == [completion for _, completion in EXAMPLES]
