"""Service Bus: retries, dead letters, operators' alerts."""

from typing import TYPE_CHECKING

from handlers import loaded_on_demand

if TYPE_CHECKING:
    from handlers.messaging import retry_queue as retry_queue

__getattr__ = loaded_on_demand(__name__)
