"""Items of a story about endpoints: what becomes of models there, and what people do."""

from __future__ import annotations

from typing import Literal

from tests.simulation.story import Act, NthItem


class PromoteRollout(Act):
    """End the current step of the newest rollout over the HTTP API."""


class RollBackRollout(Act):
    """Roll the newest rollout back over the HTTP API."""


class StartRollout(Act):
    """Roll the newest model out once more over the HTTP API."""


class PromoteModel(Act):
    """Put the oldest version of the model in service over the HTTP API."""


class RollBackModel(Act):
    """Take the champion out of service over the HTTP API."""


class PromoteToProduction(Act):
    """Promote the newest version of the model to the other workspace over the HTTP API."""

    once: bool = False
    """Whether nobody asks again if there is no answer."""


class OverwriteModel(Act):
    """Write a file of the newest version again, with other bits."""


class DeleteEndpoint(Act):
    """Delete the endpoint in Azure ML, with its deployments."""


class NoRequests(Act):
    """Nobody calls the endpoint for a while."""

    seconds: float


ModelEnd = Literal[
    "serves",
    "fails requests",
    "is slow",
    "fails later",
    "fails its smoke request",
    "cannot be provisioned",
    "is never provisioned",
]
"""What becomes of a model behind an endpoint."""


class ModelFate(NthItem):
    """How the model's n-th version does behind its endpoint; without an item it serves."""

    end: ModelEnd
