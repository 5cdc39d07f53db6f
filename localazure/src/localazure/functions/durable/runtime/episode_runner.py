"""Runs the orchestrator of an instance for one episode: from messages to effects."""

from __future__ import annotations

import logging

from localazure.functions import logs
from localazure.functions.durable.engine import decision, episode
from localazure.functions.durable.engine.decision import Decision
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.engine.invocation import FunctionFailed
from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.durable.engine.versioning import FailureStrategy
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.instance_cache import CachedInstance
from localazure.functions.durable.runtime.payloads import PayloadTooLarge, check_payloads

_logger = logging.getLogger(__name__)


class EpisodeRunner:
    """Runs episodes of an app's orchestrations; does not write to the store."""

    def __init__(self, settings: HubSettings, functions: AppFunctions) -> None:
        self._settings = settings
        self._functions = functions
        self._options = settings.options

    async def run(self, live: CachedInstance, events: list[Event]) -> Effects | None:
        """Run the next episode; None if this host does not run the instance's version.

        Args:
            live: the instance before the episode.
            events: the events in the messages that the episode consumes.
        """
        instance, at = live.instance, self._settings.now()
        execution = instance.execution
        if events and events[0]["EventType"] in episode.CONTROL_EVENTS:
            return episode.control(execution, at, started=instance.started, message=events[0])
        arrived = episode.begin(execution, at, started=instance.started, messages=events)
        if (mismatch := self._options.version_mismatch(execution)) is not None:
            return self._refuse_version(execution, arrived, mismatch)
        name = self._settings.known.resolve("orchestrator", execution.name)
        if name is None:
            error = self._settings.known.missing("orchestrator", execution.name)
            return episode.fail(
                execution, arrived, f"Orchestrator function '{execution.name}' failed: {error}"
            )
        with logs.working_for(execution.instance_id):
            answer = await self._ask(
                name,
                OrchestratorTrigger(
                    execution=execution, past=live.events, arrived=arrived, memo=live.memo
                ),
            )
        effects = episode.conclude(
            execution,
            live.events,
            arrived,
            answer,
            known=self._settings.known,
            default_version=self._options.default_version,
            cursor=live.cursor,
        )
        try:
            check_payloads(self._settings.payloads, execution, effects)
        except PayloadTooLarge as error:
            text = f"Orchestrator function '{execution.name}' failed: {error}"
            return episode.fail(execution, arrived, text)
        return effects

    async def _ask(self, name: str, trigger: OrchestratorTrigger) -> Decision:
        try:
            return decision.from_answer(await self._functions.invoke(name, trigger))
        except FunctionFailed as failure:
            return decision.from_failure(failure)

    def _refuse_version(
        self, execution: Execution, arrived: list[Event], mismatch: str
    ) -> Effects | None:
        if self._options.version_failure_strategy is FailureStrategy.FAIL:
            return episode.fail(
                execution,
                arrived,
                f"Orchestrator function '{execution.name}' failed: VersionMismatch: {mismatch}",
            )
        _logger.warning("%s; it waits for a host that runs its version", mismatch)
        return None
