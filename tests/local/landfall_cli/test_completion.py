"""Shell completion of commands in bash, by the script that set-up installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = shutil.which("bash")
EXAMPLES = [("dead", "dead-letters"), ("runs list --pip", "--pipeline")]
"""What is typed after `landfall`, and the completion of its last word."""


@pytest.mark.skipif(BASH is None, reason="no bash here")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    lines = ['eval "$(landfall --show-completion bash)"']
    for typed, _ in EXAMPLES:
        lines += [
            f"COMP_WORDS=(landfall {typed}) COMP_CWORD={len(typed.split())}",
            "_landfall_completion landfall",
            'echo "${COMPREPLY[@]}"',
        ]
    python = Path(sys.executable).parent
    ended = subprocess.run(
        [str(BASH), "-ec", "\n".join(lines)],
        env={"HOME": str(tmp_path), "PATH": f"{python}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [completion for _, completion in EXAMPLES]
