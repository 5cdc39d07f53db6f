"""A feature in the simulation: all that stories, checks and planted mistakes know of it."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from orchestrations.contracts.holds import HoldReason
from tests.simulation.story import DAY, Act, Item, Story, Zone

if TYPE_CHECKING:
    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence

Invariant = Callable[["Evidence"], Iterator[str]]
"""Yields what is wrong. Its name and the first line of its docstring are its documentation."""
Do = Callable[["Acts", Any], None]
"""Does what an item of a story says."""
Request = Callable[["Acts", Any], Coroutine[Any, Any, None]]
LAST_UPLOAD = 6 * DAY
"""The last second at which something may begin."""
ZONES: tuple[Zone, ...] = get_args(Zone)


def asked(request: Request) -> Do:
    """Have a request of somebody to the HTTP API made until there is an answer."""
    return lambda acts, item: acts.ask(functools.partial(request, acts, item))


class Week:
    """The week that is being drawn.

    Args:
        seed: of the week.
        zone: its pipeline.
        chance: what known weeks are drawn by.
        uploads: when data is written.
        changes: how many blobs are written or deleted.
    """

    def __init__(
        self, seed: int, zone: Zone, chance: random.Random, uploads: list[float], changes: int
    ) -> None:
        self.seed = seed
        self.zone: Zone = zone
        self.chance = chance
        self.uploads = uploads
        self.changes = changes
        self._apart: dict[str, random.Random] = {}

    def moment(self, chance: random.Random) -> float:
        """When something happens: mostly while something comes of an upload."""
        if chance.random() < 0.3:
            return round(chance.uniform(0, LAST_UPLOAD), 3)
        # A zone settles for five minutes.
        upload = chance.choice(self.uploads)
        return round(upload + 300.0 + chance.choice([2.0, 10.0, 100.0, 900.0]), 3)

    def chance_of(self, name: str, *, apart: bool) -> random.Random:
        """What a kind of item is drawn by."""
        if not apart:
            return self.chance
        return self._apart.setdefault(name, random.Random(f"{name} {self.seed}"))


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A kind of item that weeks have."""

    weight: float | None
    """The chance that a week has some; None: the items are drawn in every week."""
    items: Callable[[random.Random, Week], Iterator[Item]]
    zones: Sequence[Zone] = ZONES
    apart: bool = False
    """Draw by a chance of its own, so that the rest of each week stays: for whatever is new."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of `pipeline.yml` that a release may have."""

    weight: float
    """The chance that a release has it."""
    sections: Mapping[str, Any]
    """Section → keys and their values, or the whole section if it is a list."""
    jobs: tuple[str, ...] = ()
    """Job files that it needs."""
    apart: bool = False
    """As of `Drawn`."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A planted mistake, and the story of a few items in which an invariant finds it."""

    plant: Callable[[], AbstractContextManager[Any]]
    found_by: Invariant
    items: Sequence[Item]
    zone: Zone = "quiet"

    @property
    def story(self) -> Story:
        """Nothing is wrong in it without the mistake."""
        return Story(seed=1, zone=self.zone, reconcile_every=8 * 3_600.0, items=tuple(self.items))


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One module of `tests.simulation.features` defines one."""

    drawn: Mapping[str, Drawn] = field(default_factory=dict[str, Drawn])
    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])
    acts: Mapping[type[Act], Do] = field(default_factory=dict[type[Act], Do])
    invariants: tuple[Invariant, ...] = ()
    mistakes: Mapping[str, Mistake] = field(default_factory=dict[str, Mistake])
    kept: Mapping[str, Story] = field(default_factory=dict[str, Story])
    """Name → a story that found a defect, which is mended; docs/simulation.md describes it. One
    that is the story of a mistake is run there."""
    holds: Mapping[HoldReason, Story] = field(default_factory=dict[HoldReason, Story])
    """Reason → a story in which it holds a batch."""
