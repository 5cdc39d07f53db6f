"""The resources of the HTTP API for people on call, their documents, and their page."""

from typing import TYPE_CHECKING

from handlers import loaded_on_demand

if TYPE_CHECKING:
    from handlers.api import actions as actions
    from handlers.api import alarms as alarms
    from handlers.api import dead_letters as dead_letters
    from handlers.api import models as models
    from handlers.api import openapi as openapi
    from handlers.api import page as page
    from handlers.api import pausing as pausing
    from handlers.api import pipelines as pipelines
    from handlers.api import queues as queues
    from handlers.api import runs as runs
    from handlers.api import traces as traces

__getattr__ = loaded_on_demand(__name__)
