"""Inputs that are public on the web: a file, or a folder of a public blob container.

Azure ML also reads them without an identity. This needs the internet; the SDK and urllib read the
environment variables for a proxy.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient, LinearRetry

from localazure.machinelearning.data.blob_requests import BlobError
from localazure.machinelearning.data.cache import SourceNotFoundError

CONNECT_SECONDS = 30.0
# With the SDK's default retries, an unknown host takes a minute to fail.
RETRIES = 3
RETRY_SECONDS = 1
_BLOB_HOST = ".blob.core.windows.net"


def fetch_public(url: str, target: Path) -> None:
    """Download a file, or all blobs below a folder, into the folder `target`.

    Raises:
        SourceNotFoundError: there is nothing at the URL.
        OSError: the host cannot be reached.
        BlobError: the folder was listed, but a blob in it cannot be read.
    """
    target.mkdir(parents=True, exist_ok=True)
    parts = urlsplit(url)
    if (parts.hostname or "").endswith(_BLOB_HOST) and _fetch_folder(url, target):
        return
    name = Path(unquote(parts.path)).name
    if not name:
        raise SourceNotFoundError(f"{url} names no file, and only blob storage lists folders")
    try:
        with urlopen(url, timeout=CONNECT_SECONDS) as answer, (target / name).open("wb") as out:  # noqa: S310 - http and https only: `parse_uri` takes no other
            shutil.copyfileobj(answer, out)
    except HTTPError as error:
        raise SourceNotFoundError(f"{url} answers {error.code} {error.reason}") from error
    except URLError as error:
        raise OSError(f"{url} cannot be reached: {error.reason}") from error


def _fetch_folder(url: str, target: Path) -> bool:
    """Download all blobs below the URL, and return whether there are any."""
    parts = urlsplit(url)
    container, _, prefix = unquote(parts.path).strip("/").partition("/")
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    retries = LinearRetry(backoff=RETRY_SECONDS, retry_total=RETRIES, random_jitter_range=0)
    origin = f"{parts.scheme}://{parts.netloc}"
    with ContainerClient(origin, container, retry_policy=retries) as client:
        try:
            names = [blob.name for blob in client.list_blobs(name_starts_with=folder or None)]
        except AzureError:
            return False  # the URL may be a file in a container that cannot be listed
        for name in names:
            path = (target / name.removeprefix(folder)).resolve()
            if name.endswith("/") or not path.is_relative_to(target.resolve()):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("wb") as out:
                    client.get_blob_client(name).download_blob().readinto(out)
            except AzureError as error:
                raise BlobError(f"{origin}/{container}/{name}: {error.message}") from error
    return bool(names)
