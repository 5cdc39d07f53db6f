"""Live instances with their history, parsed: kept between episodes, loaded when missing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from localazure.functions.durable import history
from localazure.functions.durable.history import Event
from localazure.functions.durable.instance import LIVE, Instance
from localazure.functions.durable.replay_cursor import ReplayCursor
from localazure.functions.durable.store import Store

# Bounds memory, not correctness: what is dropped is read again. In characters of encoded history;
# parsed events take several times as much.
MAX_CACHED_CHARACTERS = 32 * 1024 * 1024


class LiveInstance:
    """One instance between two episodes.

    Args:
        instance: its row.
        pieces: its encoded history, a piece for each episode.
    """

    def __init__(self, instance: Instance, pieces: Sequence[str]) -> None:
        self.instance = instance
        self.episodes = len(pieces)
        self.events: list[Event] = history.decode(",".join(pieces))
        self.characters = sum(map(len, pieces))
        self.cursor = ReplayCursor()
        self.memo: dict[str, Any] = {}
        """See `OrchestratorTrigger.memo`."""


class LiveInstances:
    """A cache of live instances, least recently used out first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[str, LiveInstance] = OrderedDict()
        self._characters = 0

    def load(self, instance_id: str) -> LiveInstance | None:
        """A live instance; None when it has finished or never was."""
        cached = self._cached.get(instance_id)
        if cached is not None:
            self._cached.move_to_end(instance_id)
            return cached
        instance = self._store.instance(instance_id)
        if instance is None or instance.status not in LIVE:
            return None
        live = LiveInstance(instance, self._store.history(instance.execution.execution_id))
        self._cached[instance_id] = live
        self._count(live.characters)
        return live

    def extend(
        self, live: LiveInstance, instance: Instance, piece: str, events: list[Event]
    ) -> None:
        """Note what an episode appended."""
        live.instance = instance
        live.episodes += 1
        live.events.extend(events)
        live.characters += len(piece)
        if instance.execution.instance_id in self._cached:
            self._count(len(piece))

    def drop(self, instance_id: str) -> None:
        """Forget an instance: it has finished, or the store knows better."""
        live = self._cached.pop(instance_id, None)
        if live is not None:
            self._characters -= live.characters

    def _count(self, characters: int) -> None:
        self._characters += characters
        while self._characters > MAX_CACHED_CHARACTERS and len(self._cached) > 1:
            _, oldest = self._cached.popitem(last=False)
            self._characters -= oldest.characters
