"""Rollouts: who has an endpoint, what people decided, what the deployment's metrics show."""

from typing import TYPE_CHECKING

from handlers import loaded_on_demand

if TYPE_CHECKING:
    from handlers.rollouts import starting as starting

__getattr__ = loaded_on_demand(__name__)
