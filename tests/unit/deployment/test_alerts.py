"""The alert on runs without success finds what the app logs."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

import pytest

from handlers.configuration.clients import Clients
from handlers.configuration.settings import Settings
from handlers.notifications import delivery
from handlers.notifications.outbox import Delivery
from orchestrations.contracts.notifications import Notification
from orchestrations.contracts.runs import RunStatus
from tests.unit.deployment.package import ROOT

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
QUERY = re.compile(r"traces \| where message has \"(\w+)\" and message endswith \"([^\"]+)\"'")


def accept(_clients: Clients, _delivery: Delivery, _now: datetime) -> delivery.Outcome:
    return delivery.Delivered()


def logged(
    state: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The app's log entry for the delivered notification of a run's end."""
    monkeypatch.setattr(delivery, "deliver", accept)
    run = "digits-0123456789abcdef-1"
    status = RunStatus.model_validate(
        {
            "id": run,
            "pipeline": "digits",
            "attempt": 1,
            "dataset_version": "0123456789abcdef",
            "state": state,
            "since": NOW,
        }
    )
    notification = Notification.model_validate(
        {"id": f"{run}:{state}", "kind": state, "at": NOW, "status": status}
    )
    message = Delivery(notification=notification, channel="event_grid").model_dump_json()
    with caplog.at_level(logging.INFO):
        delivery.handle_delivery(Clients(Settings({})), message, now=NOW)
    return caplog.messages


@pytest.mark.parametrize(("state", "is_found"), [("succeeded", True), ("superseded", False)])
def test_the_query_finds_the_success_of_a_run_and_no_other_end(
    state: str,
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
