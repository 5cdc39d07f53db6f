"""TLS for loopback: a certificate authority of one state folder and a server certificate from it.

The Azure SDKs refuse to send a bearer token without TLS. So each state folder has a CA of its own,
whose key never leaves it, and programs are told to trust `Environment.ca_bundle`: certifi's roots
and that CA (`REQUESTS_CA_BUNDLE` replaces the roots, hence both).

Anyone may call `ensure_certificates`, in any order and at the same time: the first one makes the
files, each written whole (to a scratch file, then renamed) under a lock.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import ipaddress
import os
import ssl
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localazure.runtime.environment import LOOPBACK, Environment

# Apple's platforms refuse server certificates that are valid for longer.
# https://support.apple.com/102028
SERVER_LIFETIME = dt.timedelta(days=397)
CA_LIFETIME = dt.timedelta(days=10 * 365)
# Long enough before the end that a localazure left running for a month keeps answering.
RENEW_BEFORE_END = dt.timedelta(days=60)
CLOCK_SKEW = dt.timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """Where the PEM files of one state folder are."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    bundle: Path

    @classmethod
    def of(cls, environment: Environment) -> Certificates:
        """The paths, whether the files are there or not."""
        folder = environment.ca_bundle.parent
        return cls(
            ca=folder / "ca.pem",
            ca_key=folder / "ca-key.pem",
            server=folder / "server.pem",
            server_key=folder / "server-key.pem",
            bundle=environment.ca_bundle,
        )


def ensure_certificates(
    environment: Environment, *, now: dt.datetime | None = None
) -> Certificates:
    """Make what is missing or about to expire, and return the paths.

    Args:
        environment: whose state folder holds the CA.
        now: an aware time, for tests; the present one when left out.
    """
    moment = now or dt.datetime.fromtimestamp(time.time(), tz=dt.UTC)
    files = Certificates.of(environment)
    files.ca.parent.mkdir(parents=True, exist_ok=True)
    with _lock(files.ca.parent / "lock"):
        ca_renewed = not _is_fresh(files.ca, files.ca_key, moment)
        if ca_renewed:
            _make_ca(files, moment)
        if ca_renewed or not _is_fresh(files.server, files.server_key, moment):
            _make_server_certificate(files, moment)
        roots = Path(certifi.where()).read_bytes() + b"\n" + files.ca.read_bytes()
        if not files.bundle.exists() or files.bundle.read_bytes() != roots:
            _write(files.bundle, roots, mode=0o644)
    return files


def server_context(files: Certificates) -> ssl.SSLContext:
    """A TLS context that presents the server certificate for localhost and 127.0.0.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    return context


@contextmanager
def _lock(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by the kernel when its holder dies
        yield


def _is_fresh(certificate: Path, key: Path, now: dt.datetime) -> bool:
    """Whether both files exist, belong together and last for a while."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (FileNotFoundError, ValueError):
        return False
    return (
        parsed.public_key() == private.public_key()
        and parsed.not_valid_after_utc - RENEW_BEFORE_END > now
    )


def _make_ca(files: Certificates, now: dt.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localazure CA")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(files.ca_key, _private_pem(key), mode=0o600)
    _write(files.ca, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _make_server_certificate(files: Certificates, now: dt.datetime) -> None:
    authority = x509.load_pem_x509_certificate(files.ca.read_bytes())
    authority_key = serialization.load_pem_private_key(files.ca_key.read_bytes(), password=None)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
        message = f"{files.ca_key} holds no elliptic curve key; delete its folder to draw a new CA"
        raise TypeError(message)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + SERVER_LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    _write(files.server_key, _private_pem(key), mode=0o600)
    _write(files.server, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(target: Path, content: bytes, *, mode: int) -> None:
    scratch = target.with_suffix(".tmp")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    scratch.replace(target)
