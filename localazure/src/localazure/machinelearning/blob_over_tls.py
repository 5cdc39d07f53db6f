"""Blob storage over TLS, for the azure-ai-ml SDK's own uploads and downloads.

The SDK builds `https://{account}.blob.{suffix}` from the cloud's metadata and ignores the
datastore's endpoint. A laptop has no DNS entry for such a host. The suffix therefore continues the
URL: `{account}.blob.localhost` becomes its user name (RFC 3986, section 3.2.1), this machine the
host, and the account the first part of the path, as in the URLs of storage emulators. The storage
SDK keeps that path because the name does not contain `.blob.core.`.

There is one suffix, so all these URLs lead to one account: the workspace's.
"""

from __future__ import annotations

from localazure.runtime.environment import LOOPBACK, Environment


def storage_suffix(environment: Environment, account: str) -> str:
    """`suffixes.storage` of the cloud's metadata, for the workspace's account."""
    return f"localhost@{LOOPBACK}:{environment.ports.blob_tls}/{account}"
