"""Runs and rollouts of a simulated week, by their instances."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from localazure.functions.durable.engine.instance import Status
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.rollouts import RolloutInput
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES
from orchestrations.names import training_name
from tests.simulation.scheduler import START
from tests.simulation.task_hub import HubInstance


@dataclass
class Run:
    """One attempt, by its instance."""

    instance: HubInstance
    id: str
    version: str
    """The name of its round of training: the dataset version, for the first round."""
    attempt: int
    state: str | None
    """The state in its last custom status; None if it has set none."""
    kinds: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Channel → kinds of the notifications that arrived there."""

    @property
    def is_broken(self) -> bool:
        return self.instance.status in (Status.FAILED, Status.TERMINATED)

    @property
    def broke_early(self) -> bool:
        """Whether it broke before its end was recorded."""
        return self.is_broken and self.state not in TERMINAL_RUN_STATES


def training_of(model: Any) -> str:
    """The round of a dataset version that a registered model was trained in."""
    return training_name(
        model.tags["landfall.dataset-version"], int(model.tags.get("landfall.round", "1"))
    )


def input_of(instance: HubInstance) -> Any:
    """What an instance was started with."""
    given: Any = json.loads(instance.execution.input_json or "null")
    return json.loads(given) if isinstance(given, str) else given


@dataclass
class Rollout:
    """The rollout of one model version."""

    instance: HubInstance
    id: str
    version: str
    state: str | None
    """The state in its last custom status; None if it has set none."""
    kinds: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Channel → kinds of the notifications that arrived there."""

    @property
    def pipeline(self) -> Pipeline:
        """As configured when the run began, or when people started the rollout."""
        return RolloutInput.from_dict(input_of(self.instance)).request.pipeline

    @property
    def at_once(self) -> bool:
        """Whether it gives the model all traffic in one step, unwatched."""
        return RolloutInput.from_dict(input_of(self.instance)).request.at_once

    @property
    def is_back(self) -> bool:
        """Whether it belongs to the rollback of a model: it waits for no window."""
        change = RolloutInput.from_dict(input_of(self.instance)).request.champion
        return change is not None and change.verb == "rollback"

    @property
    def began(self) -> float:
        return (self.instance.created_at - START).total_seconds()

    @property
    def ended(self) -> float:
        """The second of its last change."""
        return (self.instance.last_updated_at - START).total_seconds()
