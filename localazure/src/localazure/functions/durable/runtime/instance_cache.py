"""Live instances with their history, parsed: kept between episodes, loaded when missing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import LIVE, Instance
from localazure.functions.durable.engine.replay_cursor import ReplayCursor
from localazure.functions.durable.store.store import Store

# Limits memory; dropped instances are loaded again. Characters of encoded history: parsed events
# take several times as much.
MAX_CACHED_CHARACTERS = 32 * 1024 * 1024


class CachedInstance:
    """One instance between two episodes.

    Args:
        instance: its row.
        pieces: its encoded history, a piece for each episode.
    """

    def __init__(self, instance: Instance, pieces: Sequence[str]) -> None:
        self.is_running = False
        """Whether an episode of the instance runs."""
        self.pending = 0
        """Commits that were submitted and are not durable yet."""
        self.replay_again_at = 0.0
        """Monotonic time; earlier replays would take more than half of the processor's time."""
        self.take(instance, pieces)

    def take(self, instance: Instance, pieces: Sequence[str]) -> None:
        """Replace the row and the history."""
        self.instance = instance
        self.episodes = len(pieces)
        self.events: list[Event] = history.decode(",".join(pieces))
        self.characters = sum(map(len, pieces))
        self.replay_anew()

    def replay_anew(self) -> None:
        """Discard the replay state of earlier episodes: the next replay starts at the beginning."""
        self.cursor = ReplayCursor()
        self.memo: dict[str, Any] = {}
        """See `OrchestratorTrigger.memo`."""


class InstanceCache:
    """A cache of live instances; the least recently used one is evicted first.

    An instance is kept while its episode runs, and while it has commits that are not durable yet.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[str, CachedInstance] = OrderedDict()
        self._characters = 0

    def load(self, instance_id: str) -> CachedInstance | None:
        """Return a live instance; None if it has finished or does not exist."""
        live = self._cached.get(instance_id)
        if live is not None:
            self._cached.move_to_end(instance_id)
            return live if live.instance.status in LIVE else None
        instance = self._store.instance(instance_id)
        if instance is None or instance.status not in LIVE:
            return None
        live = CachedInstance(instance, self._store.history(instance.execution.execution_id))
        self._add(live)
        return live

    def begin(self, instance: Instance) -> None:
        """Add a new instance, unless it has been loaded meanwhile."""
        if instance.execution.instance_id not in self._cached:
            self._add(CachedInstance(instance, ()))

    def extend(
        self, live: CachedInstance, instance: Instance, piece: str, events: list[Event]
    ) -> None:
        """Append the events of an episode whose commit was submitted."""
        live.instance = instance
        live.episodes += 1
        live.events.extend(events)
        live.characters += len(piece)
        live.pending += 1
        self._count(len(piece))

    def renew(self, live: CachedInstance, instance: Instance) -> None:
        """Start another execution; the commit that created it was submitted."""
        self._count(-live.characters)
        live.take(instance, ())
        live.pending += 1

    def settle(self, live: CachedInstance) -> None:
        """Record that a commit became durable."""
        live.pending -= 1
        if not live.pending and live.instance.status not in LIVE:
            self.drop(live.instance.execution.instance_id)

    def drop(self, instance_id: str) -> None:
        """Remove an instance that has finished or whose row has changed."""
        live = self._cached.pop(instance_id, None)
        if live is not None:
            self._characters -= live.characters

    def reset(self) -> None:
        """Remove all instances, to reload the store."""
        self._cached.clear()
        self._characters = 0

    def _add(self, live: CachedInstance) -> None:
        self._cached[live.instance.execution.instance_id] = live
        self._count(live.characters)

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._characters <= MAX_CACHED_CHARACTERS:
            return
        for instance_id, live in list(self._cached.items())[:-1]:
            if not live.pending and not live.is_running:
                self.drop(instance_id)
            if self._characters <= MAX_CACHED_CHARACTERS:
                return
