"""The folder for all state."""

from __future__ import annotations

from pathlib import Path


def make_state_folder(state: Path) -> None:
    """Create the folder, with a `.gitignore`, because it holds keys and data."""
    state.mkdir(parents=True, exist_ok=True)
    ignore = state / ".gitignore"
    if not ignore.exists():
        ignore.write_text("# Keys and data of localazure.\n*\n")
