"""`python -m infra.check [FOLDER]`: one line for each problem; exit status 1 if there is one."""

from __future__ import annotations

import sys
from pathlib import Path

from infra.check.check import check


def main(root: Path) -> int:
    """Check a folder and print what is wrong."""
    problems = check(root)
    for problem in problems:
        print(problem)
    print(f"infra: {len(problems)} problems" if problems else "infra: nothing is wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
