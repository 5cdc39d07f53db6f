"""How the benchmark talks to a peer's process: one JSON document a line, on stdin and stdout.

The peer says `{"ready": true}`; then each line `{"measure": NAME, "count": N}` is answered with
`{"result": ...}`, or `{"skipped": REASON}`. The end of stdin ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class NotOffered(Exception):
    """The engine has no such thing to be measured; the message says what it has instead."""


class Engine(Protocol):
    """The requests that every engine answers. Chains have six steps that do nothing."""

    def chains(self, count: int) -> float:
        """Seconds from the first start to the end of `count` chains, all in flight at once."""
        ...

    def serial(self, count: int) -> Sequence[float]:
        """Milliseconds of each of `count` chains, one after the other."""
        ...

    def fan_out(self, width: int) -> float:
        """Seconds of one workflow with `width` steps at once."""
        ...

    def events(self, count: int) -> Sequence[float]:
        """Milliseconds from an outside trigger to the first step of the workflow it starts."""
        ...


class Peer(ABC):
    """An `Engine`, by how its workflows `chain`, `fan_out` and `first_step` start and end."""

    @abstractmethod
    def start(self, workflow: str, argument: int = 0) -> Any:
        """Start a workflow; returns what `end` waits for."""

    @abstractmethod
    def end(self, started: Any) -> Any:
        """Wait for the end of what was started; returns its result."""

    def trigger(self) -> Any:
        """Start `first_step` from outside of the engine, as `start` does.

        Raises:
            NotOffered: nothing from outside starts workflows.
        """
        return self.start("first_step")

    def chains(self, count: int) -> float:
        """See `Engine`."""
        began = time.monotonic()
        for started in [self.start("chain") for _ in range(count)]:
            self.end(started)
        return time.monotonic() - began

    def serial(self, count: int) -> list[float]:
        """See `Engine`."""
        return [milliseconds(lambda: self.end(self.start("chain"))) for _ in range(count)]

    def fan_out(self, width: int) -> float:
        """See `Engine`."""
        return milliseconds(lambda: self.end(self.start("fan_out", width))) / 1000

    def events(self, count: int) -> list[float]:
        """See `Engine`."""
        milliseconds: list[float] = []
        for _ in range(count):
            began_ns = time.monotonic_ns()
            milliseconds.append((int(self.end(self.trigger())) - began_ns) / 1e6)
        return milliseconds


def serve(peer: Peer) -> None:
    """Answer until stdin ends. What else is printed goes to stderr."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"ready": True}), file=channel, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": getattr(peer, request["measure"])(request["count"])}
        except NotOffered as reason:
            answer = {"skipped": str(reason)}
        print(json.dumps(answer), file=channel, flush=True)


def milliseconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.monotonic()
    call()
    return (time.monotonic() - began) * 1000
