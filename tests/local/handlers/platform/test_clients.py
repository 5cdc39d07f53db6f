"""The clients' connections: given back, whatever is read over them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from handlers.platform.manifests import read_chunks
from tests.local.handlers.zone_on_storage import Zone


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Unreachable objects stay alive, as if the collector had not run yet."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
def test_reading_an_empty_manifest_gives_its_connection_back(zone: Zone) -> None:
    dataset = zone.freeze()
    before = connections(zone)
    for _ in range(3):
        assert not list(read_chunks(zone.clients, dataset.manifest_path))
    assert connections(zone) == before


def connections(zone: Zone) -> int:
    port = urlsplit(zone.clients.blobs.url).port
    mine = psutil.Process().net_connections("tcp4")
    return sum(bool(each.raddr) and each.raddr.port == port for each in mine)
