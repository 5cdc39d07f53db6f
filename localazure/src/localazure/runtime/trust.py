"""Makes the SDKs in this process trust the servers of a state folder.

`requests`, aiohttp and Python's TLS read the file that an environment variable names (see
`localazure.machinelearning.client_settings`). azure-servicebus always uses certifi's file, and
certifi has no setting for another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import certifi


@contextlib.contextmanager
def trusted(bundle: Path) -> Generator[None]:
    """Make certifi return another file of roots while the context lasts.

    Args:
        bundle: `Environment.ca_bundle`, which includes certifi's roots.
    """
    original = certifi.where
    certifi.where = lambda: str(bundle)
    try:
        yield
    finally:
        certifi.where = original
