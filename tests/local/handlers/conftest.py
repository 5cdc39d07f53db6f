"""Fixtures for tests of several packages of the handlers."""

from tests.local.handlers.cloud import cloud, running_cloud
from tests.local.handlers.hung_service_bus import hung_bus
from tests.local.handlers.world_with_messaging import namespace, quiet_queues, world
from tests.local.handlers.zone_on_storage import storage, storage_part, zone

__all__ = [
    "cloud",
    "hung_bus",
    "namespace",
    "quiet_queues",
    "running_cloud",
    "storage",
    "storage_part",
    "world",
    "zone",
]
