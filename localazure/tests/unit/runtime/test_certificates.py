from __future__ import annotations

import datetime as dt
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import certifi
import pytest
import trustme
from cryptography import x509

from localazure.runtime.certificates import (
    RENEW_BEFORE_END,
    SERVER_LIFETIME,
    ensure_certificates,
    server_context,
)
from localazure.runtime.environment import Environment, Ports

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    drawn = Environment.draw(tmp_path, app=tmp_path, ports=Ports.from_base(7070))
    return replace(drawn, service_bus_host="127.7.7.7")


def test_what_is_made(environment: Environment) -> None:
    files = ensure_certificates(environment)
    bundle = environment.ca_bundle.read_bytes()
    assert bundle.startswith(Path(certifi.where()).read_bytes())
    assert files.ca.read_bytes() in bundle
    assert len(ssl.create_default_context(cafile=environment.ca_bundle).get_ca_certs()) > 1
    server = x509.load_pem_x509_certificate(files.server.read_bytes())
    server.verify_directly_issued_by(x509.load_pem_x509_certificate(files.ca.read_bytes()))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["localhost", "127.0.0.1", "127.7.7.7"]
    for key in (files.ca_key, files.server_key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_server_certificate_near_its_end_is_renewed_under_the_same_ca(
    environment: Environment,
) -> None:
    files = ensure_certificates(environment, now=NOW)
    authority, server = files.ca.read_bytes(), files.server.read_bytes()
    later = NOW + SERVER_LIFETIME - RENEW_BEFORE_END
    ensure_certificates(environment, now=later)
    assert files.ca.read_bytes() == authority
    assert files.server.read_bytes() != server


def test_incomplete_files_of_a_crash_are_replaced(environment: Environment) -> None:
    files = ensure_certificates(environment)
    server = files.server.read_bytes()
    files.server_key.unlink()
    files.bundle.write_text("torn")
    ensure_certificates(environment)
    assert files.server.read_bytes() != server
    assert files.ca.read_bytes() in files.bundle.read_bytes()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_what_the_user_trusts_is_trusted(
    variable: str, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = trustme.CA(organization_unit_name="a company").cert_pem.bytes()
    known = Path(certifi.where()).read_bytes()
    (tmp_path / "roots.pem").write_bytes(known + proxy)
    monkeypatch.setenv(variable, str(tmp_path / "roots.pem"))

    files = ensure_certificates(environment)

    assert files.bundle.read_bytes() == known + b"\n" + proxy + b"\n" + files.ca.read_bytes()


def test_a_variable_may_name_no_file(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    assert ensure_certificates(environment).bundle.exists()


def test_concurrent_calls_agree(environment: Environment) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(ensure_certificates, [environment] * 8))
    assert len({files.ca.read_bytes() for files in made}) == 1
    server_context(made[0])
