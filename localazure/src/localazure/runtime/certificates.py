"""TLS for loopback: a certificate authority of one state folder and a server certificate from it.

The Azure SDKs refuse to send a bearer token without TLS. So each state folder has a CA of its own,
whose key never leaves it. Programs trust `Environment.ca_bundle`: certifi's roots and that CA
(`REQUESTS_CA_BUNDLE` replaces the roots, so the file holds both). trustme makes the certificates.

All processes may call `ensure_certificates` at the same time: the first one makes the files, each
written whole (to a scratch file, then renamed) under a lock.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import ssl
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import certifi
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from localazure.processes.atomic_file import write_atomically
from localazure.runtime.environment import LOOPBACK, Environment

# Apple's platforms refuse server certificates that are valid for longer.
# https://support.apple.com/102028
SERVER_LIFETIME = dt.timedelta(days=397)
# A localazure that runs for a month keeps a valid certificate.
RENEW_BEFORE_END = dt.timedelta(days=60)
CLOCK_SKEW = dt.timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """The paths of the PEM files of one state folder."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    bundle: Path

    @classmethod
    def of(cls, environment: Environment) -> Certificates:
        """The paths, whether the files are there or not."""
        folder = environment.ca.parent
        return cls(
            ca=environment.ca,
            ca_key=folder / "ca-key.pem",
            server=folder / "server.pem",
            server_key=folder / "server-key.pem",
            bundle=environment.ca_bundle,
        )


def ensure_certificates(
    environment: Environment, *, now: dt.datetime | None = None
) -> Certificates:
    """Create files that are missing or about to expire, and return the paths.

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
            _make_ca(files)
        if ca_renewed or not _is_fresh(files.server, files.server_key, moment):
            _make_server_certificate(files, environment.service_bus_host, moment)
        roots = Path(certifi.where()).read_bytes() + b"\n" + files.ca.read_bytes()
        if not files.bundle.exists() or files.bundle.read_bytes() != roots:
            write_atomically(files.bundle, roots, mode=0o644)
    return files


def server_context(files: Certificates) -> ssl.SSLContext:
    """A TLS context that presents the server certificate, of localhost and loopback addresses."""
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


def _make_ca(files: Certificates) -> None:
    authority = trustme.CA(path_length=0, organization_unit_name="localazure CA")
    write_atomically(files.ca_key, authority.private_key_pem.bytes())
    write_atomically(files.ca, authority.cert_pem.bytes(), mode=0o644)


def _make_server_certificate(files: Certificates, host: str, now: dt.datetime) -> None:
    authority = trustme.CA.from_pem(files.ca.read_bytes(), files.ca_key.read_bytes())
    issued = authority.issue_cert(
        "localhost", LOOPBACK, host, not_before=now - CLOCK_SKEW, not_after=now + SERVER_LIFETIME
    )
    write_atomically(files.server_key, issued.private_key_pem.bytes())
    write_atomically(files.server, issued.cert_chain_pems[0].bytes(), mode=0o644)
