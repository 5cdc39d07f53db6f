"""TLS for loopback: a certificate authority (CA) per state folder, and its server certificate.

The Azure SDKs refuse to send a bearer token without TLS. So each state folder has its own CA, whose
key never leaves the folder. Programs trust `Environment.ca_bundle`. Its name replaces that of their
own roots, so the file has certifi's, those that the user's variables name, and this CA. trustme
makes the certificates.

Processes may call `ensure_certificates` at the same time: the first one makes the files, with
atomic writes under a lock.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import re
import ssl
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import certifi

from localazure.processes.atomic_file import write_atomically
from localazure.runtime.environment import LOOPBACK, Environment

# Apple's platforms refuse server certificates that are valid for longer.
# https://support.apple.com/102028
SERVER_LIFETIME = dt.timedelta(days=397)
# Certificates are renewed only at start: they must last longer than localazure runs.
RENEW_BEFORE_END = dt.timedelta(days=60)
CLOCK_SKEW = dt.timedelta(hours=1)

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """The paths of the PEM files of one state folder."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    server_end: Path
    """A file with the server certificate's end in epoch seconds, to need no X.509 parser."""
    bundle: Path

    @classmethod
    def of(cls, environment: Environment) -> Certificates:
        """Return the paths, whether or not the files exist."""
        folder = environment.ca.parent
        return cls(
            ca=environment.ca,
            ca_key=folder / "ca-key.pem",
            server=folder / "server.pem",
            server_key=folder / "server-key.pem",
            server_end=folder / "server-end",
            bundle=environment.ca_bundle,
        )


def ensure_certificates(
    environment: Environment, *, now: dt.datetime | None = None
) -> Certificates:
    """Create files that are missing or expire soon, and return the paths.

    Args:
        environment: the environment whose state folder has the CA.
        now: an aware time, for tests; by default the current time.
    """
    moment = now or dt.datetime.fromtimestamp(time.time(), tz=dt.UTC)
    files = Certificates.of(environment)
    files.ca.parent.mkdir(parents=True, exist_ok=True)
    with _lock(files.ca.parent / "lock"):
        if not _are_pair(files.ca, files.ca_key):
            _make_ca(files)
            files.server_end.unlink(missing_ok=True)
        if not (_are_pair(files.server, files.server_key) and _lasts(files.server_end, moment)):
            _make_server_certificate(files, environment.service_bus_host, moment)
        roots = _roots() + b"\n" + files.ca.read_bytes()
        if not files.bundle.exists() or files.bundle.read_bytes() != roots:
            write_atomically(files.bundle, roots)
    return files


def server_context(files: Certificates) -> ssl.SSLContext:
    """Return a TLS context with the server certificate, for localhost and loopback addresses."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    return context


def _roots() -> bytes:
    """Return certifi's roots, and what the user trusts beside them, such as a company's proxy."""
    roots = Path(certifi.where()).read_bytes()
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        with contextlib.suppress(OSError):  # names no file, or a folder
            for root in _CERTIFICATE.findall(Path(os.environ.get(variable, "")).read_bytes()):
                if root.strip() not in roots:
                    roots += b"\n" + root
    return roots


@contextmanager
def _lock(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel releases it when the process dies
        yield


def _are_pair(certificate: Path, key: Path) -> bool:
    """Whether both files exist, are valid and belong together."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (FileNotFoundError, ssl.SSLError):
        return False
    return True


def _lasts(end: Path, now: dt.datetime) -> bool:
    """Whether the end of a certificate is further away than `RENEW_BEFORE_END`."""
    try:
        return float(end.read_text()) - RENEW_BEFORE_END.total_seconds() > now.timestamp()
    except (FileNotFoundError, ValueError):
        return False


def _make_ca(files: Certificates) -> None:
    """Create a CA that practically never expires: trustme's default is the year 3000."""
    import trustme  # noqa: PLC0415 - once in a state folder's life

    authority = trustme.CA(path_length=0, organization_unit_name="localazure CA")
    write_atomically(files.ca_key, authority.private_key_pem.bytes())
    write_atomically(files.ca, authority.cert_pem.bytes())


def _make_server_certificate(files: Certificates, host: str, now: dt.datetime) -> None:
    import trustme  # noqa: PLC0415 - once a year

    authority = trustme.CA.from_pem(files.ca.read_bytes(), files.ca_key.read_bytes())
    end = now + SERVER_LIFETIME
    issued = authority.issue_cert(
        "localhost", LOOPBACK, host, not_before=now - CLOCK_SKEW, not_after=end
    )
    write_atomically(files.server_key, issued.private_key_pem.bytes())
    write_atomically(files.server, issued.cert_chain_pems[0].bytes())
    write_atomically(files.server_end, str(end.timestamp()))  # last: without it, both are renewed


@contextlib.contextmanager
def trusted(bundle: Path) -> Generator[None]:
    """Make certifi return another file of roots while the context lasts.

    azure-servicebus always uses certifi's file, and certifi has no setting for another one.

    Args:
        bundle: `Environment.ca_bundle`, which includes certifi's roots.
    """
    original = certifi.where
    certifi.where = lambda: str(bundle)
    try:
        yield
    finally:
        certifi.where = original
