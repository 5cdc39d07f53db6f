"""The alert on runs without success finds what the app logs."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import Literal

import pytest

from handlers.notify import delivery
from handlers.notify.outbox import Delivery
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from orchestrations.contracts.notifications import Notification
from tests.unit.deployment.package import ROOT
from tests.unit.orchestrations.examples import run_status

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
End = Literal["succeeded", "superseded"]
QUERY = re.compile(r"traces \| where message has \"(\w+)\" and message endswith \"([^\"]+)\"'")


def accept(_clients: Clients, _delivery: Delivery, _now: datetime) -> delivery.Outcome:
    return delivery.Delivered()


def logged(
    state: End, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The app's log entry for the delivered notification of a run's end."""
    monkeypatch.setattr(delivery, "deliver", accept)
    run = "digits-0123456789abcdef-1"
    notification = Notification(
        id=f"{run}:{state}", kind=state, at=NOW, status=run_status(run, state)
    )
    message = Delivery(notification=notification, channel="event_grid").model_dump_json()
    with caplog.at_level(logging.INFO):
        delivery.handle_delivery(Clients(Settings({})), message, now=NOW)
    return caplog.messages


@pytest.mark.parametrize(("state", "is_found"), [("succeeded", True), ("superseded", False)])
def test_the_query_finds_the_success_of_a_run_and_no_other_end(
    state: End,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_found: bool,
) -> None:
    found = QUERY.search((ROOT / "infra" / "alerts.bicep").read_text("utf-8"))
    assert found is not None
    term, end = found.groups()
    lines = logged(state, caplog, monkeypatch)
    # `has` of Kusto finds whole terms.
    matches = [line for line in lines if re.search(rf"\b{term}\b", line) and line.endswith(end)]
    assert bool(matches) == is_found, lines
