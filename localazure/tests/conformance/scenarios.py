"""The scenarios for every SDK version: each drives `app/` over HTTP and checks the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.waiting import until
from harness.wheel import ANSWER_SECONDS, Host


def _expect(actual: object, expected: object) -> None:
    assert actual == expected, f"{actual!r} is not {expected!r}"


def _http(host: Host) -> None:
    _expect(host.get("/api/hello?name=you"), "hello, you")


def _activities(host: Host) -> None:
    _expect(host.outcome(host.start("squares", [1, 2, 3])), [1, 4, 9])


def _retries(host: Host) -> None:
    _expect(host.outcome(host.start("retries")), "attempt 3")


def _failures(host: Host) -> None:
    _expect(host.outcome(host.start("failures")), "caught")


def _sub_orchestrations(host: Host) -> None:
    _expect(host.outcome(host.start("children")), [[1, 4], [4, 9]])


def _timers(host: Host) -> None:
    _expect(host.outcome(host.start("timers")), [True, 9])


def _external_events(host: Host) -> None:
    status_url = host.start("events")
    until(
        lambda: host.get(status_url)["customStatus"] == "waiting", ANSWER_SECONDS, "custom status"
    )
    host.get(f"/api/approve/{host.get(status_url)['instanceId']}", {})
    _expect(host.outcome(status_url), {"by": "the boss"})


def _entities(host: Host) -> None:
    _expect(host.outcome(host.start("entities")), 42)


def _http_calls(host: Host) -> None:
    given = f"{host.url}/api/hello?name=orchestrator"
    _expect(host.outcome(host.start("calls", given)), "hello, orchestrator")


def _continue_as_new(host: Host) -> None:
    _expect(host.outcome(host.start("again", 3)), "done")


SCENARIOS: Final[dict[str, Callable[[Host], None]]] = {
    "HTTP trigger": _http,
    "activities": _activities,
    "retries": _retries,
    "failures": _failures,
    "sub-orchestrations": _sub_orchestrations,
    "timers": _timers,
    "external events": _external_events,
    "entities": _entities,
    "HTTP calls": _http_calls,
    "continue as new": _continue_as_new,
}
