"""Blob storage over TLS, for the uploads and downloads that the azure-ai-ml SDK makes by itself.

The SDK builds `https://{account}.blob.{suffix}` from the cloud's metadata, whatever a datastore's
endpoint is. A laptop has no DNS for such a host. So the suffix continues the URL in a way that
makes `{account}.blob.localhost` the user name of it (RFC 3986, section 3.2.1), this machine the
host, and the account the first part of the path, as in every emulator's URLs. The storage SDK
keeps that path because the name has no `.blob.core.` in it.

There is one suffix, so these URLs all lead to one account: the workspace's.
"""

from __future__ import annotations

from localazure.runtime.environment import LOOPBACK, Environment


def storage_suffix(environment: Environment, account: str) -> str:
    """`suffixes.storage` of the cloud's metadata, for the workspace's account."""
    return f"localhost@{LOOPBACK}:{environment.ports.blob_tls}/{account}"
