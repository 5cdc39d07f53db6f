"""SIGTERM, as a cancelled job or a launcher that shuts down sends it."""

from __future__ import annotations

import signal
from typing import Self


class StopRequest:
    """Whether SIGTERM has come.

    It takes effect inside a `with` block. Before and after it SIGTERM ends the process at once:
    there is nothing to save that is not saved.

    Attributes:
        requested: true once SIGTERM has come.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGTERM, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._previous)

    def _request(self, *_: object) -> None:
        self.requested = True
