"""The unchecked definition of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A function as its author defined it."""

    name: str
    directory: Path
    """The value of `context.function_directory`."""
    call: Callable[..., Any]
    bindings: tuple[Mapping[str, Any], ...]
    """The bindings in the form of function.json."""
    trigger: str
    """Name of the trigger's binding."""
    has_retry_policy: bool
