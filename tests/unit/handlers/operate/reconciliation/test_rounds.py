from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from handlers.operate.reconciliation.rounds import Faults, alert_persistent, follow
from handlers.platform import record_store
from tests.fakes.azure_ml import World

NOW = datetime(2026, 11, 27, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Rounds:
    """Rounds of reconciliation, a minute apart."""

    def __init__(self, world: World) -> None:
        self.clients = world.clients
        self.now = NOW

    def do(self, *failed: str, is_complete: bool = True) -> list[str]:
        self.now += MINUTE
        errors = dict.fromkeys(failed, "403")
        return alert_persistent(self.clients, errors, is_complete=is_complete, now=self.now)


@pytest.fixture
def rounds(world: World) -> Rounds:
    return Rounds(world)


def test_a_step_that_fails_in_two_rounds_is_told_once_until_it_works(rounds: Rounds) -> None:
    told = [rounds.do("zone of digits") for _ in range(5)]
    assert told == [[], ["zone of digits"], [], [], []]
    assert rounds.do() == []
    assert [rounds.do("zone of digits") for _ in range(3)] == [[], ["zone of digits"], []]
    kept = record_store.read_all(rounds.clients.records, "outbox/ops-alerts/")
    assert len({each["message_id"] for each in kept}) == 2


def test_a_round_that_had_no_time_for_a_step_does_not_end_its_fault(rounds: Rounds) -> None:
    rounds.do("endpoints")
    assert rounds.do(is_complete=False) == ["endpoints"]
    assert rounds.do("endpoints") == []


@pytest.mark.parametrize("kind", ["run", "nodes of run", "index of run", "request", "landing"])
def test_an_outage_that_fails_the_steps_of_many_runs_is_one_cause(kind: str) -> None:
    failed = {f"{kind} digits-{number}-1": "no answer" for number in range(50)}
    after = follow(Faults(), failed, is_complete=True, now=NOW)
    assert [each.cause for each in after.open] == [kind]


def test_the_zones_of_pipelines_are_causes_of_their_own() -> None:
    failed = {"zone of a": "403", "zone of b": "403", "dataset-claims/a/0.json": "x"}
    after = follow(Faults(), failed, is_complete=True, now=NOW)
    assert [each.cause for each in after.open] == ["zone of a", "zone of b", "dataset-claims"]
