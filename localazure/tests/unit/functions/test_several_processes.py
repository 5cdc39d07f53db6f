from __future__ import annotations

import sys
from pathlib import Path

from localazure.functions.several_processes import run_hosts


async def test_an_error_of_a_host_ends_all_with_its_status(tmp_path: Path) -> None:
    """One host ends with an error; the other one would run for a minute."""
    mark = tmp_path / "mark"
    script = (
        f"import os, sys, time\n"
        f"try: os.mkdir({str(mark)!r})\n"
        f"except FileExistsError: time.sleep(60)\n"
        f"sys.exit(3)"
    )
    lines: list[str] = []
    command = [sys.executable, "-c", script]
    assert await run_hosts(command, 2, tmp_path / "state", lines.append) == 3
    names = [line.partition(" is process")[0] for line in lines]
    assert sorted(names) == ["engine", "host 1", "host 2"]
    assert (tmp_path / "state" / "keys.json").exists()
