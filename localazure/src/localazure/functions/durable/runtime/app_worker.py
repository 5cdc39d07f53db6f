"""The functions of an app as the worker of its task hub."""

from __future__ import annotations

from localazure.functions.durable.runtime.activity_call import ActivityCall
from localazure.functions.durable.runtime.entities import EntityFunctions
from localazure.functions.durable.runtime.episode_runner import EpisodeRunner
from localazure.functions.durable.runtime.hosted_app import HostedApp
from localazure.functions.durable.runtime.worker import Worker


class AppWorker(Worker):
    """Runs the functions of an app in the host's process."""

    def __init__(self, app: HostedApp) -> None:
        self.run_episode = EpisodeRunner(app).run
        self.run_activity = ActivityCall(app).run
        self.run_operations = EntityFunctions(app).run

    def interrupt(self, instance_id: str) -> None:
        """Do nothing: an orchestrator does not wait."""
