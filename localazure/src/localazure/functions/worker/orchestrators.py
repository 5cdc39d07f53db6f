"""Runs orchestrators by azure-functions-durable, or by an equivalent shortcut.

The shortcut (`replay_shortcut`) bypasses constructors of the SDK and so depends on its private
attributes. It is used only with the versions in `PROVED_VERSIONS`. `make conformance` compares the
SDK and the shortcut, attribute by attribute, on every version.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any, Final

from azure.functions import OrchestrationContext

from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger

SDK: Final = "azure-functions-durable"
PROVED_VERSIONS: Final = frozenset({"1.6.0", "1.7.0"})
"""SDK versions on which the shortcut is equivalent: see localazure/docs/sdk-versions.md."""


class TriggerContext(OrchestrationContext):
    """An `OrchestrationContext` that serialises its body only on access."""

    def __init__(self, trigger: OrchestratorTrigger) -> None:
        self.trigger = trigger

    @property
    def body(self) -> str:
        """The JSON input of the orchestrator."""
        return self.trigger.body

    def __str__(self) -> str:
        return self.body


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to call with a `TriggerContext`: a faster one if possible, or the same."""
    if metadata.version(SDK) not in PROVED_VERSIONS:
        return function
    # The import itself depends on private attributes of the SDK.
    from localazure.functions.worker import replay_shortcut

    return replay_shortcut.wrap(function)
