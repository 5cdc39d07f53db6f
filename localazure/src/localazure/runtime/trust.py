"""Lets the SDKs of this process trust the servers of a state folder.

`requests`, aiohttp and Python's own TLS read the file that an environment variable names (see
`localazure.machinelearning.client_settings`). azure-servicebus takes certifi's file without a
question, and certifi has no setting for another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import certifi


@contextlib.contextmanager
def trusted(bundle: Path) -> Generator[None]:
    """Have certifi name another file of roots while the context lasts.

    Args:
        bundle: `Environment.ca_bundle`, which has certifi's own roots, too.
    """
    original = certifi.where
    certifi.where = lambda: str(bundle)
    try:
        yield
    finally:
        certifi.where = original
