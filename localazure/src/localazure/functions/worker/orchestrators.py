"""Runs orchestrators of azure-functions-durable in its own way, or by an equivalent short cut.

The short cut (`replay_shortcut`) goes past constructors of the SDK and so depends on its private
attributes. It is taken only with the versions in `PROVED_VERSIONS`; `make conformance` compares
both ways, attribute by attribute, on every version.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any, Final

from azure.functions import OrchestrationContext

from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger

SDK: Final = "azure-functions-durable"
PROVED_VERSIONS: Final = frozenset({"1.6.0", "1.7.0"})
"""Versions of the SDK on which both ways were compared: localazure/docs/sdk-versions.md."""


class TriggerContext(OrchestrationContext):
    """An `OrchestrationContext` that serializes its body when it is read."""

    def __init__(self, trigger: OrchestratorTrigger) -> None:
        self.trigger = trigger

    @property
    def body(self) -> str:
        """The orchestrator-in document."""
        return self.trigger.body

    def __str__(self) -> str:
        return self.body


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to call for an orchestrator with a `TriggerContext`: faster, or the same one."""
    if metadata.version(SDK) not in PROVED_VERSIONS:
        return function
    # Its import already depends on private attributes of the SDK.
    from localazure.functions.worker import replay_shortcut

    return replay_shortcut.wrap(function)
