"""What a situation is: its play, its pipeline, and which generations of it are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.replay.recording import Document
from tests.replay.scene import CONTAINER, Holds, Scene, ended_as, is_done

BASE: Document = {
    "source": {"container": CONTAINER},
    "settle": {"quiet_seconds": 1, "maximum_wait_seconds": 60},
    "dataset": {"datastore": "landing"},
    "compute": [{"cluster": "cpu", "size": "Standard_D4s_v5", "nodes": 4}],
    "gate": {"metric": "accuracy", "floor": 0.5},
    "retry": {"attempts": 2, "delays_seconds": [0]},
}


Play = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Which generation of an orchestrator is recorded: the n-th of which something holds."""

    orchestrator: str
    holds: Holds = is_done
    number: int = 1


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One situation: its pipeline is `BASE` with `changes`."""

    play: Play
    keep: Mapping[str, Kept]
    """Name of the recording, without the orchestrator's → what is kept under it."""
    changes: Document


SITUATIONS: dict[str, Situation] = {}


def situation(name: str, keep: Mapping[str, Kept], **changes: Any) -> Callable[[Play], Play]:
    """Make a play a situation."""

    def register(play: Play) -> Play:
        SITUATIONS[name] = Situation(play=play, keep=keep, changes=changes)
        return play

    return register


def landing(number: int = 1, holds: Holds = is_done) -> Kept:
    return Kept(orchestrator="landing", holds=holds, number=number)


def run(state: str, number: int = 1) -> Kept:
    return Kept(orchestrator="retraining", holds=ended_as(state), number=number)


def rollout(state: str) -> Kept:
    return Kept(orchestrator="rollout", holds=ended_as(state))


def upload(*names: str, landed: int = 1, **script: float) -> Play:
    """Some files land, and so many generations of `landing` end."""

    async def play(scene: Scene) -> None:
        await scene.land(*names, **script)
        await scene.landed(landed)

    return play


def upload_until(state: str, **script: float) -> Play:
    """A file lands, and a run ends in that state."""

    async def play(scene: Scene) -> None:
        await scene.land("1", **script)
        await scene.ended(state)

    return play
