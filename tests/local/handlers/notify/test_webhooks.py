from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import closing

import pytest
import trustme

from handlers.notify.webhooks import Answer, ReceiverUnreachable, parse_receiver, post
from tests.local.handlers.world_with_messaging import HttpReceiver, http_receiver

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NAME = "localhost"


def send(url: str, **more: object) -> Answer:
    given = {"headers": {"webhook-id": "n"}, "body": b"{}", "now": NOW} | more
    return post(parse_receiver(url, setting="URL"), **given)  # type: ignore[arg-type]  # arguments by name


@pytest.fixture(scope="module")
def receiver() -> Generator[HttpReceiver]:
    with http_receiver() as running:
        yield running


def test_it_posts_path_query_and_body(receiver: HttpReceiver) -> None:
    answer = send(f"http://{NAME}:{receiver.port}/a?b=c", body=b'{"x": 1}')
    assert answer == Answer(204)
    (posted,) = receiver.to("/a?b=c")
    assert posted.body == b'{"x": 1}'
    assert posted.headers["Host"] == f"{NAME}:{receiver.port}"
    assert posted.headers["webhook-id"] == "n"
    assert posted.headers["Content-Type"] == "application/json"


def test_redirects_are_not_followed(receiver: HttpReceiver) -> None:
    receiver.answers["/redirect"] = (307, {"Location": f"{receiver.url}/elsewhere"})
    answer = send(f"{receiver.url}/redirect")
    assert (answer.status, answer.accepted) == (307, False)
    assert receiver.to("/elsewhere") == []


def test_retry_after_is_told(receiver: HttpReceiver) -> None:
    receiver.answers["/busy"] = (429, {"Retry-After": "120"})
    assert send(f"{receiver.url}/busy") == Answer(429, 120.0)


def test_a_receiver_that_is_not_there_is_unreachable() -> None:
    with closing(socket.socket()) as bound:  # bound, but not listening
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ReceiverUnreachable, match="ConnectionRefusedError"):
            send(f"http://127.0.0.1:{bound.getsockname()[1]}/secret-path")


def test_an_answer_that_drips_is_cut_off_in_time() -> None:
    stop = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b"X: y\r\n")
                except OSError:
                    return

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        started = time.monotonic()
        try:
            with pytest.raises(ReceiverUnreachable):
                send(f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout_seconds=0.5)
            assert time.monotonic() - started < 10
        finally:
            stop.set()
            thread.join()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serving_as(name: str, authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_tls_asks_for_the_name_and_checks_its_certificate(authority: trustme.CA) -> None:
    names: list[str | None] = []

    def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        names.append(name)

    context = serving_as(NAME, authority)
    context.sni_callback = note
    with http_receiver(context) as receiver:
        url = f"https://{NAME}:{receiver.port}/"
        assert send(url, tls=trusting(authority)).accepted
    assert names == [NAME]


@pytest.mark.parametrize("name", [NAME, "other.example.com"])
def test_tls_trusts_no_other_issuer_and_no_other_name(authority: trustme.CA, name: str) -> None:
    # A stranger's certificate for the right name; a trusted one for the wrong name.
    tls = None if name == NAME else trusting(authority)
    with (
        http_receiver(serving_as(name, authority)) as receiver,
        pytest.raises(ReceiverUnreachable, match="SSLCertVerificationError"),
    ):
        send(f"https://{NAME}:{receiver.port}/", tls=tls)
    assert receiver.posted == []
