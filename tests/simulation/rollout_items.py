"""Items of a story about endpoints: what people do."""

from __future__ import annotations

from tests.simulation.story import Act


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


class DeleteEndpoint(Act):
    """Delete the endpoint in Azure ML, with its deployments."""
