"""How the benchmark talks to a peer's process: one JSON document a line, on stdin and stdout.

The peer says `{"ready": true}`; then each line `{"measure": NAME, "count": N}` is answered with
`{"result": ...}`. The end of stdin ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Peer(ABC):
    """An engine that is measured, by how its workflows start and end.

    They are `chain`, six steps that do nothing, and `fan_out`.
    """

    @abstractmethod
    def start(self, workflow: str, argument: int = 0) -> Any:
        """Start a workflow; returns what `end` waits for."""

    @abstractmethod
    def end(self, started: Any) -> Any:
        """Wait for the end of what was started; returns its result."""

    def chains(self, count: int) -> float:
        """Seconds from the first start to the end of `count` chains, all in flight at once."""
        began = time.monotonic()
        for started in [self.start("chain") for _ in range(count)]:
            self.end(started)
        return time.monotonic() - began

    def serial(self, count: int) -> list[float]:
        """Milliseconds of each of `count` chains, one after the other."""
        return [milliseconds(lambda: self.end(self.start("chain"))) for _ in range(count)]

    def fan_out(self, width: int) -> float:
        """Seconds of one workflow with `width` steps at once."""
        return milliseconds(lambda: self.end(self.start("fan_out", width))) / 1000


def serve(peer: Peer) -> None:
    """Answer until stdin ends. What else is printed goes to stderr."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"ready": True}), file=channel, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"result": getattr(peer, request["measure"])(request["count"])}
        print(json.dumps(answer), file=channel, flush=True)


def milliseconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.monotonic()
    call()
    return (time.monotonic() - began) * 1000
