"""Paths of requests to the storage services, `/account/container/blob`. Pure: no I/O."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote

ROOT_CONTAINER = "$root"


def account_of(path: str) -> str:
    """The account of a path-style path `/account/container/blob`."""
    return path.removeprefix("/").partition("?")[0].partition("/")[0]


def split_target(target: str) -> tuple[str, dict[str, str]]:
    """Return the path as sent, and the first value of each query parameter by lower-case name."""
    path, _, query = target.partition("?")
    return path, {name.lower(): values[0] for name, values in parse_qs(query).items()}


def split_path(path: str) -> tuple[str, str]:
    """Container and blob name, decoded, of a path-style path `/account/container/blob`.

    A single segment after the account is a blob of the root container. The blob is empty if the
    path names none.
    """
    _, _, rest = path.removeprefix("/").partition("/")
    container, slash, blob = rest.partition("/")
    if not slash:
        return ROOT_CONTAINER, unquote(container)
    return unquote(container), unquote(blob)
