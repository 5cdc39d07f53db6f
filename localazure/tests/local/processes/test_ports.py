from __future__ import annotations

import socket
import sys

import pytest

from localazure.processes.ports import LOOPBACK, free_address, free_ports

LINUX_ONLY = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a drawn port cannot be held for another process"
)


def test_a_server_that_names_a_drawn_port_can_listen_on_it() -> None:
    (port,) = free_ports(1)
    # Python's servers set SO_REUSEADDR. Twice, as after a restart.
    for _ in range(2):
        with socket.create_server((LOOPBACK, port)), socket.create_connection((LOOPBACK, port)):
            pass


def test_no_process_listens_on_a_drawn_port() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, port)):
        pass


@LINUX_ONLY
def test_two_servers_can_have_one_port_at_drawn_addresses() -> None:
    (port,) = free_ports(1)
    first, second = free_address(port), free_address(port)
    with socket.create_server((first, port)), socket.create_server((second, port)):
        assert first != second


@LINUX_ONLY
def test_the_kernel_assigns_no_drawn_port() -> None:
    """64 ports are 1 in 200 of the half of the range from which the kernel assigns ports."""
    drawn = free_ports(64)
    assert len(set(drawn)) == 64
    others = set[int]()
    for _ in range(10_000):
        with socket.socket() as other:
            other.bind((LOOPBACK, 0))
            others.add(other.getsockname()[1])
    assert len(others) > 1000
    assert not others & set(drawn)
