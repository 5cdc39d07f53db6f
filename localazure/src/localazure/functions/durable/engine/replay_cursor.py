"""Continues a replay where the last episode stopped, if the result is the same."""

from __future__ import annotations

from collections.abc import Sequence

from localazure.functions.durable.engine.decision import Decision
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.engine.replay import Replay


class ReplayCursor:
    """The replay of one execution's history, kept between its episodes.

    Replay is a function of the history and of the actions that it has begun. History only grows. So
    when the orchestrator has repeated the actions that were begun, one by one, what an earlier
    episode made of them stands, and only what is new is fed. When it has not (an orchestrator that
    is not deterministic, but also a timer that was cancelled meanwhile), replay is done from the
    beginning and decides.
    """

    def __init__(self) -> None:
        self._replay: Replay | None = None
        self._fed = 0

    def run(
        self,
        execution: Execution,
        past: Sequence[Event],
        arrived: Sequence[Event],
        decision: Decision,
        *,
        known: KnownFunctions,
        default_version: str | None,
    ) -> Replay:
        """The replay of `past` and `arrived`, which is what the next call's `past` begins with.

        Raises:
            ReplayFailed: history and actions contradict each other, or an action cannot be begun.
        """
        # After any exception the incomplete replay is not used again.
        replay, self._replay = self._replay, None
        if replay is None or not replay.adopt(decision):
            self._fed = 0
            replay = Replay(
                instance_id=execution.instance_id,
                execution_id=execution.execution_id,
                decision=decision,
                known=known,
                default_version=default_version,
            )
        for index in range(self._fed, len(past)):
            replay.feed(past[index])
        for event in arrived:
            replay.feed(event)
        self._fed = len(past) + len(arrived)
        self._replay = replay
        return replay
