"""What a model was made with, for its description."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from pathlib import Path

_PACKAGES = ("torch", "numpy", "pillow", "safetensors")


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide what a model does."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def code_version() -> str:
    """The SHA-256 (hex) of this package's source files, by name: a job's code has no history."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
