"""The definition of a function in either programming model, not checked yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One function as defined by its author."""

    name: str
    directory: Path
    """Of `context.function_directory`."""
    call: Callable[..., Any] | None
    """None where it could not be imported; `fault` says why."""
    bindings: tuple[Mapping[str, Any], ...]
    """Each as function.json has it."""
    trigger: str
    """Name of the binding that is the trigger."""
    retry: Mapping[str, Any]
    """Settings of `@app.retry`; empty for no policy."""
    is_disabled: bool = False
    fault: str | None = None
    """The reason why it cannot run."""
