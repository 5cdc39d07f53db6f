"""A wrong rendezvous address is reported as such, and not as the loss of a rank."""

from __future__ import annotations

import socket

import pytest

from trainers.errors import LaunchInvalid, PeerFailed
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """`World.join` sets variables for torch; this restores the environment at the end."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")


def launch(rank: int, port: int) -> Launch:
    return Launch(rank=rank, size=2, host="127.0.0.1", port=port)


@pytest.mark.usefixtures("meeting")
def test_a_port_that_another_program_has_is_no_loss_of_a_peer() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LaunchInvalid, match=f"cannot listen on 127.0.0.1:{port}"):
            World.join(launch(0, port), timeout_seconds=1)


@pytest.mark.usefixtures("meeting")
def test_nobody_listens_where_rank_0_should() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        port = free.getsockname()[1]
        with pytest.raises(PeerFailed, match=f"cannot be reached at 127.0.0.1:{port}"):
            World.join(launch(1, port), timeout_seconds=0.2)


@pytest.mark.usefixtures("meeting")
def test_a_port_that_cannot_be_is_named() -> None:
    with pytest.raises(LaunchInvalid, match=r"127\.0\.0\.1:99999"):
        World.join(launch(0, 99_999), timeout_seconds=1)
