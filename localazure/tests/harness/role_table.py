"""Changes an app's role table while the parts run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from harness.child_process import REPOSITORY

TABLE: Final[dict[str, Any]] = json.loads((REPOSITORY / "infra" / "roles.json").read_text("utf-8"))

Grant = Callable[..., None]
"""Gives the app exactly these roles."""


class RoleTable:
    """The role table of an app, at first a copy of the repository's."""

    def __init__(self, app: Path) -> None:
        self._file = app / "infra" / "roles.json"
        self._file.parent.mkdir(exist_ok=True)
        self._writes = itertools.count()
        self.assign(TABLE["assignments"])

    def assign(self, rows: Iterable[dict[str, Any]]) -> None:
        """Replace the assignments, with immediate effect."""
        # The size must change, because two writes may have the same time.
        padding = "\n" * next(self._writes)
        self._file.write_text(json.dumps({**TABLE, "assignments": list(rows)}) + padding)

    def remove(self) -> None:
        """Delete the file, so that all identities have all permissions."""
        self._file.unlink()
