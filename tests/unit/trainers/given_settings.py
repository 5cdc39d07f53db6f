"""Settings by their options, without those that every run needs."""

from __future__ import annotations

from pathlib import Path

from trainers.settings import Settings, parse_settings


def settings_of(*options: str, folder: str | Path = "o") -> Settings:
    """The settings of a run that leaves its outputs and checkpoints in one folder."""
    needed = ("--output-dir", str(folder), "--checkpoint-dir", str(folder))
    return parse_settings("", [*needed, *options])
