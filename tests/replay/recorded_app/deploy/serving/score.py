"""A scoring script for models of any content: what is recorded here is the orchestrators."""

from __future__ import annotations


def init() -> None:
    """There is nothing to load."""


def run(data: str) -> str:
    """Answer with the request."""
    return data
