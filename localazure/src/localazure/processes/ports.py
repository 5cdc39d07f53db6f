"""Free ports and addresses for listeners that start later or in other processes."""

from __future__ import annotations

import atexit
import contextlib
import random
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Generator
from pathlib import Path

LOOPBACK = "127.0.0.1"

# Enough for several environments. Each one takes a file descriptor.
_MOST_HELD = 128
_MOST_DRAWS = 3
_held: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Draw distinct ports that no process listens on.

    Seconds may pass between the draw and the first `listen`, and the kernel could give a port to
    another process. So on Linux this process keeps each port bound, not listening, with
    SO_REUSEADDR, until it ends or has drawn `_MOST_HELD` more. A server that names the port and
    sets this option can listen on it; the kernel does not choose it for any other socket
    (socket(7); ip_local_port_range in ip(7)). Elsewhere only one socket may be bound to a port.
    """
    drawn = [socket.socket() for _ in range(count)]
    for each in drawn:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind((LOOPBACK, 0))
    ports: list[int] = [each.getsockname()[1] for each in drawn]
    _held.extend(drawn)
    while _held and (len(_held) > _MOST_HELD or sys.platform != "linux"):
        _held.popleft().close()
    return ports


def free_address(port: int) -> str:
    """Draw a loopback address on which no process listens on `port`.

    Linux and Windows have all of 127.0.0.0/8 (RFC 1122, section 3.2.1.3). Other systems have
    127.0.0.1 alone, so that one process at a time can listen there.
    """
    chance = random.SystemRandom()
    for _ in range(_MOST_DRAWS):
        address = f"127.{chance.randint(1, 254)}.{chance.randint(1, 254)}.{chance.randint(1, 254)}"
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return address
    return LOOPBACK


@contextlib.contextmanager
def unix_socket() -> Generator[Path]:
    """Draw the address of a Unix socket, in a folder of this user that is removed at the end.

    It has about 100 characters at most (unix(7)), and so it is in no folder that the user chose.
    """
    with tempfile.TemporaryDirectory(prefix="localazure-") as folder:
        yield Path(folder, "socket")


@atexit.register
def _let_go() -> None:
    while _held:
        _held.popleft().close()
