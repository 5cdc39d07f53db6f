"""Free ports of the loopback interface, for whoever is to listen on them later or in a process."""

from __future__ import annotations

import atexit
import socket
import sys
from collections import deque

LOOPBACK = "127.0.0.1"

# Of several environments, so that files stay few in a process that draws again and again.
_MOST_HELD = 128
_held: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Draw ports that nobody listens on, no two alike.

    Between the draw and the first `listen` seconds may pass, in which the kernel could give a port
    to somebody else. So on Linux this process holds each of them until it ends, or has drawn
    `_MOST_HELD` more: bound, not listening, and with SO_REUSEADDR. That lets those listen who name
    the port and set this option, as servers do, and keeps it from those who let the kernel choose
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


@atexit.register
def _let_go() -> None:
    while _held:
        _held.popleft().close()
