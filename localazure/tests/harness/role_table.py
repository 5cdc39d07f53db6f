"""The roles of the repository's own table, which a test takes away while the parts run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from harness.child_process import REPOSITORY

TABLE: Final[dict[str, Any]] = json.loads((REPOSITORY / "infra" / "roles.json").read_text("utf-8"))

Grant = Callable[..., None]
"""Gives the app these roles, and no other."""


class RoleTable:
    """The file of an app that the parts read their roles from, at first the repository's."""

    def __init__(self, app: Path) -> None:
        self._file = app / "infra" / "roles.json"
        self._file.parent.mkdir(exist_ok=True)
        self._writes = itertools.count()
        self.assign(TABLE["assignments"])

    def assign(self, rows: Iterable[dict[str, Any]]) -> None:
        """Replace the assignments; it counts at once."""
        # Its size differs from the last one: two writes may have the same time.
        padding = "\n" * next(self._writes)
        self._file.write_text(json.dumps({**TABLE, "assignments": list(rows)}) + padding)

    def remove(self) -> None:
        """Delete the file: every identity may do everything again."""
        self._file.unlink()
