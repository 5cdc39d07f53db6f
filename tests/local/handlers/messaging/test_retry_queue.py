from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusReceivedMessage

from handlers.messaging.dead_letter_queue import DeadLetters, Rejected, sweep
from handlers.messaging.redrive import redrive
from handlers.messaging.retry_queue import parse_retry, schedule_retry
from handlers.messaging.service_bus import REJECTED_RUNS, RETRIES, message_queues
from orchestrations.contracts.runs import ScheduleRetry
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.unit.orchestrations.examples import DATASET, run_request

PREFIX = f"digits-{DATASET.version}"


def dead_letter_runs(world: World, *attempts: int) -> None:
    """As `dead_letter` does for each; at once, for the SDK takes a second to close a receiver."""
    letters = [
        Rejected(
            message_id=f"{PREFIX}-{attempt}",
            kind="run",
            body=run_request(attempt).model_dump_json(),
            reason="JobFailed",
            description="out of attempts",
            run=f"{PREFIX}-{attempt}",
        ).to_message()
        for attempt in attempts
    ]
    message_queues(world.clients).send(REJECTED_RUNS, *letters)
    assert sweep(world.clients) >= len(letters)


def test_a_retry_is_seen_once_and_after_its_delay(world: World, namespace: Namespace) -> None:
    request = ScheduleRetry(request=run_request(2), delay_seconds=1.5)
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    schedule_retry(world.clients, request)
    schedule_retry(world.clients, request)  # as after a crash between effect and checkpoint
    (message,) = namespace.take(RETRIES)
    assert datetime.now(UTC) >= due
    assert message.message_id == f"{PREFIX}-2"
    assert parse_retry(str(message)) == run_request(2)


def test_redrive_sends_next_attempts_also_after_dying_on_the_way(
    world: World, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = Rejected(
        message_id="unreadable", kind="message", body="?", reason="InvalidRequest", description=""
    )
    message_queues(world.clients).send(REJECTED_RUNS, unreadable.to_message())
    dead_letter_runs(world, 40, 42, 44)

    def die(letters: DeadLetters, message: ServiceBusReceivedMessage) -> None:
        del message
        letters.release()  # as the broker does when the dead process's lock has expired
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "take", die)
        with pytest.raises(KeyboardInterrupt):
            redrive(world.clients, f"{PREFIX}-42", 10)  # died between sending and removing

    assert redrive(world.clients, f"{PREFIX}-42", 10) == [f"{PREFIX}-43"]
    # The others were given back: nobody has to wait for a lock.
    assert redrive(world.clients, None, 1) == [f"{PREFIX}-41"]
    received = namespace.take(RETRIES)
    assert [parse_retry(str(each)).attempt for each in received] == [43, 41]
    left = [str(each.message_id) for each in namespace.take_dead(REJECTED_RUNS)]
    assert left == ["unreadable", f"{PREFIX}-44"]


def test_a_run_that_was_dead_lettered_twice_is_redriven_once(
    world: World, namespace: Namespace
) -> None:
    letters = [
        Rejected(
            message_id=f"copy-{copy}",  # as if the second came when the first's id was forgotten
            kind="run",
            body=run_request(50).model_dump_json(),
            reason="JobFailed",
            description="out of attempts",
            run=f"{PREFIX}-50",
        ).to_message()
        for copy in range(2)
    ]
    message_queues(world.clients).send(REJECTED_RUNS, *letters)
    assert sweep(world.clients) >= 2
    assert redrive(world.clients, f"{PREFIX}-50", 10) == [f"{PREFIX}-51"]
    received = namespace.take(RETRIES)
    assert [parse_retry(str(each)).attempt for each in received] == [51]
    left = [each.body for each in namespace.take_dead(REJECTED_RUNS)]
    assert not any(run_request(50).model_dump_json().encode() in b"".join(body) for body in left)
