"""Tests the broker with qpid-proton, a plain AMQP 1.0 client; needs qpid-proton installed.

python proton_client.py HOST:PORT KEY_NAME KEY
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from proton import (  # pyright: ignore[reportMissingImports] - its own environment
    Message,
    ProtonException,
    Timeout,
)
from proton.utils import (  # pyright: ignore[reportMissingImports] - its own environment
    BlockingConnection,
)

SECONDS = 10.0


def _connect(**options: Any) -> Any:
    host, user, password = sys.argv[1:4]
    settings = {
        "timeout": SECONDS,
        "user": user,
        "password": password,
        "allowed_mechs": "PLAIN",
        "allow_insecure_mechs": True,
    }
    return BlockingConnection(f"amqp://{host}", **(settings | options))


def fields_of_a_message_come_back(connection: Any) -> None:
    sent = Message(
        id="one",
        subject="subject",
        correlation_id="correlation",
        content_type="text/plain",
        properties={"number": 7, "text": "é", "flag": True},
        body="body",
        durable=True,
    )
    connection.create_sender("proton").send(sent)
    receiver = connection.create_receiver("proton", credit=1)
    got = receiver.receive(SECONDS)
    receiver.accept()
    for name in ("id", "subject", "correlation_id", "content_type", "properties", "body"):
        assert getattr(got, name) == getattr(sent, name), name
    assert got.annotations["x-opt-sequence-number"] > 0


def a_released_message_comes_again(connection: Any) -> None:
    connection.create_sender("proton").send(Message(body="again"))
    receiver = connection.create_receiver("proton", credit=1)
    receiver.receive(SECONDS)
    receiver.release(delivered=False)
    assert receiver.receive(SECONDS).body == "again"
    receiver.accept()


def a_rejected_message_is_dead(connection: Any) -> None:
    connection.create_sender("proton").send(Message(body="bad"))
    receiver = connection.create_receiver("proton", credit=1)
    receiver.receive(SECONDS)
    receiver.reject()
    receiver.close()
    dead = connection.create_receiver("proton/$DeadLetterQueue", credit=1)
    assert dead.receive(SECONDS).body == "bad"
    dead.accept()


def credit_is_kept(connection: Any) -> None:
    sender = connection.create_sender("proton")
    for number in range(3):
        sender.send(Message(body=number))
    receiver = connection.create_receiver("proton", credit=2)
    assert [receiver.receive(SECONDS).body for _ in range(2)] == [0, 1]
    assert receiver.fetcher is not None
    assert not receiver.fetcher.has_message, "a third message came for a credit of two"
    receiver.accept()
    receiver.accept()
    receiver.close()
    rest = connection.create_receiver("proton", credit=1)
    assert rest.receive(SECONDS).body == 2
    rest.accept()


def an_unknown_entity_is_refused(connection: Any) -> None:
    assert "amqp:not-found" in _refusal(lambda: connection.create_sender("nowhere"))


def a_short_idle_timeout_is_kept(_: Any) -> None:
    connection = _connect(heartbeat=2)
    receiver = connection.create_receiver("proton", credit=1)
    began = time.monotonic()
    try:
        receiver.receive(6.0)  # three times the idle timeout
    except Timeout:
        assert time.monotonic() - began > 5
    connection.close()


def a_wrong_key_is_refused(_: Any) -> None:
    assert "auth" in _refusal(lambda: _connect(password="wrong")).lower()


def _refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except ProtonException as error:
        return str(error)
    raise AssertionError("it was not refused")


CHECKS: tuple[Callable[[Any], None], ...] = (
    fields_of_a_message_come_back,
    a_released_message_comes_again,
    a_rejected_message_is_dead,
    credit_is_kept,
    an_unknown_entity_is_refused,
    a_short_idle_timeout_is_kept,
    a_wrong_key_is_refused,
)


def main() -> int:
    """Run all checks; the exit status is the number of failed checks."""
    failed = 0
    for check in CHECKS:
        connection = _connect()
        try:
            check(connection)
            result = "ok"
        except Exception as error:  # noqa: BLE001 - any error is a result
            failed += 1
            result = f"not ok: {type(error).__name__}: {error}"
        finally:
            connection.close()
        sys.stdout.write(f"{check.__name__.replace('_', ' ')}: {result}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
