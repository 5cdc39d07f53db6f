"""Continues the replay of the previous episode if this has the result of a full replay."""

from __future__ import annotations

from collections.abc import Sequence

from localazure.functions.durable.engine.decision import Decision
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.engine.replay import Replay


class ReplayCursor:
    """The replay of one execution's history, kept between its episodes.

    A replay depends only on the history, which is append-only, and on the actions started so far.
    If the new decision begins with the same actions, the replay of earlier episodes is still valid,
    and only the new events are fed. Otherwise (the orchestrator is not deterministic, or a timer
    was canceled meanwhile) the whole history is replayed.
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
        """Replay `past` and `arrived`. The next call's `past` must begin with both.

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
