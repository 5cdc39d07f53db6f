"""The functions of an app of azure-functions-durable 1 as the worker of its task hub."""

from __future__ import annotations

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.runtime import entities
from localazure.functions.durable.runtime.activity_call import ActivityCall
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.entities import EntityFunctions
from localazure.functions.durable.runtime.episode_runner import EpisodeRunner
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.worker import Worker


class AppWorker(Worker):
    """Runs the functions of an app in the host's process."""

    def __init__(self, settings: HubSettings, functions: AppFunctions) -> None:
        self._settings = settings
        self.run_episode = EpisodeRunner(settings, functions).run
        self.run_activity = ActivityCall(settings, functions).run
        self.run_operations = EntityFunctions(settings, functions).run

    def interrupt(self, instance_id: str) -> None:
        """Do nothing: an orchestrator does not wait."""

    def signal(self, entity_id: str, operation: str, input_json: str | None) -> Event:
        """Create the message of a client's signal."""
        del entity_id
        request = entities.signal(operation, input_json)
        return history.event_raised(self._settings.now(), "op", request)
