"""How the benchmark talks to a peer's process: one JSON document a line, on stdin and stdout.

The peer says `{"ready": true}`; then each line `{"measure": NAME, "count": N}` is answered with
`{"result": ...}`, or `{"skipped": REASON}`. The end of stdin ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol


class NotOffered(Exception):
    """The engine has no such thing to be measured; the message says what it has instead."""


class Engine(Protocol):
    """The requests that every engine answers. Chains have six steps that do nothing.

    Any of these may raise NotOffered.
    """

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


def serve(engine: Engine) -> None:
    """Answer until stdin ends. What else is printed goes to stderr."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    measures: dict[str, Callable[[int], object]] = {
        "chains": engine.chains,
        "serial": engine.serial,
        "fan_out": engine.fan_out,
        "events": engine.events,
    }
    print(json.dumps({"ready": True}), file=channel, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": measures[request["measure"]](request["count"])}
        except NotOffered as reason:
            answer = {"skipped": str(reason)}
        print(json.dumps(answer), file=channel, flush=True)


def milliseconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.monotonic()
    call()
    return (time.monotonic() - began) * 1000
