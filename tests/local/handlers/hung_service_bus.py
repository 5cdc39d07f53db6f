"""A Service Bus that accepts connections and never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from handlers.platform.clients import Clients
from handlers.platform.settings import Settings


@pytest.fixture
def hung_bus() -> Iterator[Clients]:
    """Clients of a Service Bus whose server never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        accepted: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        port = server.getsockname()[1]
        address = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=a2V5"
        settings = {"ServiceBus": f"{address};UseDevelopmentEmulator=true"}
        yield Clients(Settings(settings))
        server.shutdown(socket.SHUT_RDWR)  # `accept` returns
        for each in accepted:  # the SDK's threads end
            each.close()
