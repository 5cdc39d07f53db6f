"""Notifications to Event Grid, operators and webhooks."""

from typing import TYPE_CHECKING

from handlers import loaded_on_demand

if TYPE_CHECKING:
    from handlers.notifications import delivery as delivery

__getattr__ = loaded_on_demand(__name__)
