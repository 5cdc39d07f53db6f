"""Inputs that are public on the web: a file, or a folder of a public blob container.

Azure ML also reads them without an identity. This needs the internet; urllib reads the environment
variables for a proxy.
"""

from __future__ import annotations

import shutil
import urllib.request
from functools import partial
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

from localazure.machinelearning.data.blobs import retry_while_unavailable
from localazure.machinelearning.data.cache import SourceNotFoundError
from localazure.storage_client import blobs
from localazure.storage_client.endpoint import Endpoint, Request, StorageError, refusal

CONNECT_SECONDS = 30.0
RETRY_SECONDS = 3.0
"""How long a listing is tried again."""
_BLOB_HOST = ".blob.core.windows.net"


def fetch_public(url: str, target: Path) -> None:
    """Download a file, or all blobs below a folder, into the folder `target`.

    Raises:
        SourceNotFoundError: there is nothing at the URL.
        OSError: the host cannot be reached.
        StorageError: the folder was listed, but a blob in it cannot be read.
    """
    target.mkdir(parents=True, exist_ok=True)
    parts = urlsplit(url)
    if (parts.hostname or "").endswith(_BLOB_HOST) and _fetch_folder(url, target):
        return
    name = Path(unquote(parts.path)).name
    if not name:
        raise SourceNotFoundError(f"{url} names no file, and only blob storage lists folders")
    _fetch_file(url, target / name)


def _fetch_file(url: str, file: Path) -> None:
    try:
        with urlopen(url, timeout=CONNECT_SECONDS) as answer, file.open("wb") as out:  # noqa: S310 - http and https only: `parse_uri` takes no other
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
    service = Endpoint(url=f"{parts.scheme}://{parts.netloc}")
    try:
        names = _list(service, container, folder)
    except StorageError:
        return False  # the URL may be a file in a container that cannot be listed
    for name in names:
        path = (target / name.removeprefix(folder)).resolve()
        if name.endswith("/") or not path.is_relative_to(target.resolve()):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _fetch_file(service.url_of(f"{container}/{name}"), path)
        except OSError as error:
            raise StorageError(str(error)) from error
    return bool(names)


def _list(service: Endpoint, container: str, folder: str) -> list[str]:
    """The names of a container's blobs below a folder, without authorization.

    Raises:
        StorageError: the container cannot be listed, or the host cannot be reached.
    """
    names: list[str] = []
    marker = ""
    while True:
        read = partial(_read, service, blobs.list_blobs(container, folder, marker=marker))
        page = blobs.parse_page(retry_while_unavailable(read, give_up_after_seconds=RETRY_SECONDS))
        names += [blob.name for blob in page.blobs]
        marker = page.marker
        if not marker:
            return names


def _read(service: Endpoint, request: Request) -> bytes:
    url, headers = service.prepare(request)
    try:
        opened = urllib.request.Request(url, headers=headers)  # noqa: S310 - as above
        with urlopen(opened, timeout=CONNECT_SECONDS) as answer:  # noqa: S310
            return answer.read()
    except HTTPError as error:
        raise refusal(request, error.code, dict(error.headers), b"") from error
    except OSError as error:
        raise StorageError(f"{url}: {error}") from error
