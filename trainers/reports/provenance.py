"""Versions of packages and code, for a model's description."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from pathlib import Path

_PACKAGES = ("torch", "numpy", "pillow", "safetensors")


def versions(*further: str) -> dict[str, str]:
    """Of Python, of the packages that a model's results depend on, and of `further` ones."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in (*_PACKAGES, *further)},
    }


def code_version() -> str:
    """The SHA-256 (hex) of the trainers' source files, by name: a job's code has no history."""
    digest = hashlib.sha256()
    for name, content in sources().items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def sources() -> dict[str, bytes]:
    """The source files of package `trainers` by their paths in it, sorted."""
    package = Path(__file__).parents[1]
    return {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in sorted(package.rglob("*.py"))
    }
