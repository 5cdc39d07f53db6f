"""Ways to plant a mistake in the app."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from handlers.operate.reconciliation import reconciliation
from handlers.platform import activity_adapter
from handlers.platform.clients import Clients
from orchestrations.contracts.base import Contract, Done

Plant = Callable[[], AbstractContextManager[Any]]


def body(name: str, other: Callable[[Clients, Any], Contract]) -> Plant:
    """Another body of an activity."""
    return lambda: mock.patch.dict(activity_adapter.bodies(), {name: other})


def round_without(step: str) -> Plant:
    """Reconciliation without a step."""
    return lambda: mock.patch.object(reconciliation, step, never)


def both(first: Plant, second: Plant) -> Plant:
    """Two mistakes: one alone makes up for the other."""

    @contextmanager
    def planted() -> Generator[None]:
        with first(), second():
            yield

    return planted


def nothing(_clients: Clients, _request: Any) -> Done:
    """Do nothing: the body of an activity."""
    return Done()


async def never(*_: Any, **__: Any) -> None:
    """Do nothing: a step, or a trigger that takes its message."""
