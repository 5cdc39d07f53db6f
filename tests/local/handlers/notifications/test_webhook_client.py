from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from handlers.notifications.receiver_addresses import ReceiverRefused
from handlers.notifications.webhook_client import Answer, ReceiverUnreachable, post
from tests.local.handlers.world_with_messaging import HttpReceiver, http_receiver

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NAME = "hooks.example.com"


def at_loopback(_host: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def send(url: str, **more: object) -> Answer:
    given = {"headers": {"webhook-id": "n"}, "body": b"{}", "networks": LOOPBACK, "now": NOW} | more
    return post(url, **given)  # type: ignore[arg-type]  # arguments by name


@pytest.fixture(scope="module")
def receiver() -> Generator[HttpReceiver]:
    with http_receiver() as running:
        yield running


def test_it_posts_to_the_address_that_was_checked(receiver: HttpReceiver) -> None:
    asked: list[tuple[str, int]] = []

    def resolver(host: str, port: int) -> Sequence[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    answer = send(f"http://{NAME}:{receiver.port}/a?b=c", body=b'{"x": 1}', resolver=resolver)
    assert answer == Answer(204)
    assert asked == [(NAME, receiver.port)]  # once: what is checked is what is used
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


def test_loopback_is_refused_unless_it_is_allowed(receiver: HttpReceiver) -> None:
    with pytest.raises(ReceiverRefused, match=r"127\.0\.0\.1"):
        send(f"{receiver.url}/refused", networks=())
    assert receiver.to("/refused") == []


def test_a_receiver_that_is_not_there_is_unreachable() -> None:
    with closing(socket.socket()) as bound:  # but does not listen
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ReceiverUnreachable, match="ConnectionRefusedError"):
            send(f"http://127.0.0.1:{bound.getsockname()[1]}/secret-path")


def test_the_next_address_is_tried_as_long_as_nothing_was_sent(receiver: HttpReceiver) -> None:
    url = f"http://{NAME}:{receiver.port}/second"
    networks = (*LOOPBACK, ipaddress.ip_network("::1/128"))

    def resolver(_host: str, _port: int) -> Sequence[str]:
        return ["::1", "127.0.0.1"]  # nobody listens on the first one

    assert send(url, resolver=resolver, networks=networks).accepted
    assert len(receiver.to("/second")) == 1


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
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate of NAME."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime.now(dt.UTC) - dt.timedelta(days=1))
        .not_valid_after(dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return file


@contextmanager
def tls_server(certificate: Path, names: list[str | None]) -> Generator[int]:
    """Takes one request over TLS, answers 204; keeps the name that the client asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        names.append(name)

    context.sni_callback = note

    def serve(listening: socket.socket) -> None:
        plain, _ = listening.accept()
        try:
            with context.wrap_socket(plain, server_side=True) as connection:
                received = b""
                while not received.endswith(b"\r\n\r\n{}"):
                    received += connection.recv(4096)
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        except OSError:
            plain.close()

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()


def test_tls_asks_for_the_name_and_checks_its_certificate(certificate: Path) -> None:
    names: list[str | None] = []
    trusting = ssl.create_default_context(cafile=certificate)
    with tls_server(certificate, names) as port:
        url = f"https://{NAME}:{port}/"
        assert send(url, resolver=at_loopback, tls=trusting).accepted
    assert names == [NAME]


@pytest.mark.parametrize("name", [NAME, "other.example.com"])
def test_tls_trusts_no_other_issuer_and_no_other_name(certificate: Path, name: str) -> None:
    # A stranger's certificate for the right name; a trusted one for the wrong name.
    tls = None if name == NAME else ssl.create_default_context(cafile=certificate)
    with (
        tls_server(certificate, []) as port,
        pytest.raises(ReceiverUnreachable, match="SSLCertVerificationError"),
    ):
        send(f"https://{name}:{port}/", resolver=at_loopback, tls=tls)
