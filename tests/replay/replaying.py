"""Replays recorded histories against this tree's orchestrators, by the replay guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azure.durable_functions import Orchestrator

from orchestrations.freezing import freezing
from orchestrations.landing import landing
from orchestrations.retraining import retraining
from orchestrations.rollout import rollout
from replay_guard import worker_form
from replay_guard.matching import Difference
from replay_guard.replay import replay
from tests.replay.recording import Recording

Orchestration = Callable[..., Any]

ORCHESTRATORS: dict[str, Orchestration] = {
    each.__name__: each for each in (landing, freezing, retraining, rollout)
}


def differences(recording: Recording, orchestrator: Orchestration) -> list[Difference]:
    """Where an orchestrator differs from a recording, its answer to the last episode included."""
    history = worker_form.read(
        {"trigger": recording.trigger, "episodes": recording.episodes, "answer": recording.answer}
    )
    return replay(history, Orchestrator.create(orchestrator)).differences
