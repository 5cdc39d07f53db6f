"""The functions of an app."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localazure.functions.durable.engine.invocation import Invoke


@dataclass(frozen=True, kw_only=True)
class AppFunctions:
    """How to run the functions of an app.

    Attributes:
        invoke: runs a function.
        runs_twice: whether to run an activity that succeeded again, as after a lost worker.
        signals_twice: whether to deliver a signal to an entity again, as after a lost worker.
    """

    invoke: Invoke
    runs_twice: Callable[[str], bool] = lambda _activity: False
    signals_twice: Callable[[str], bool] = lambda _entity: False
