"""Public inputs on the web."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from localazure.machinelearning.data import public_inputs
from localazure.machinelearning.data.public_inputs import fetch_public

HOST = "data.blob.core.windows.net"


def test_an_unreachable_host_fails_after_a_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retries for local storage would take five minutes, in each of a sweep's trials."""
    tries: list[object] = []
    resolve = socket.getaddrinfo

    def no_such_host(host: str, *arguments: object) -> object:
        if host != HOST:  # threads of other tests may still run in this process
            return resolve(host, *arguments)  # pyright: ignore[reportArgumentType, reportCallIssue] - the caller's arguments
        tries.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_host)
    monkeypatch.setattr(public_inputs, "RETRY_SECONDS", 0)
    with pytest.raises(
        OSError, match=rf"https://{HOST}/.*iris\.csv cannot be reached: .*not known"
    ):
        fetch_public(f"https://{HOST}/datasets/iris.csv", tmp_path / "input")
    assert len(tries) == 2  # the folder's listing, then the file
