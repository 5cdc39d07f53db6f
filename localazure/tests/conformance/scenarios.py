"""The scenarios for every SDK version: each calls `app/` over HTTP and checks the result."""

from __future__ import annotations

from typing import Any, Final

from harness.waiting import until
from harness.wheel import ANSWER_SECONDS, Host

_ORCHESTRATIONS: Final[dict[str, tuple[str, Any, Any]]] = {
    "activities": ("squares", [1, 2, 3], [1, 4, 9]),
    "retries": ("retries", None, "attempt 3"),
    "failures": ("failures", None, "caught"),
    "sub-orchestrations": ("children", None, [[1, 4], [4, 9]]),
    "timers": ("timers", None, [True, 9]),
    "external events": ("events", None, {"by": "the boss"}),
    "entities": ("entities", None, 42),
    "HTTP calls": ("calls", "/api/hello?name=orchestrator", "hello, orchestrator"),
    "continue as new": ("again", 3, "done"),
}
"""Scenario → orchestrator, input and expected output."""
SCENARIOS: Final = ("HTTP trigger", *_ORCHESTRATIONS)


def run(scenario: str, host: Host) -> None:
    """Run a scenario.

    Raises:
        AssertionError: the result differs from the expected result.
    """
    if scenario == "HTTP trigger":
        actual, expected = host.get("/api/hello?name=you"), "hello, you"
    else:
        orchestrator, given, expected = _ORCHESTRATIONS[scenario]
        if orchestrator == "calls":
            given = host.url + given
        status_url = host.start(orchestrator, given)
        if orchestrator == "events":
            until(
                lambda: host.get(status_url)["customStatus"] == "waiting",
                ANSWER_SECONDS,
                "custom status",
            )
            host.get(f"/api/approve/{host.get(status_url)['instanceId']}", {})
        actual = host.outcome(status_url)
    assert actual == expected, f"{actual!r} is not {expected!r}"
