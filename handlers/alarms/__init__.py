"""Silence alarms: what should have happened and has not."""

from typing import TYPE_CHECKING

from handlers import loaded_on_demand

if TYPE_CHECKING:
    from handlers.alarms import raising as raising

__getattr__ = loaded_on_demand(__name__)
