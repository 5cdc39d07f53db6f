"""The configuration of a run: `pipeline.yml` and `job.yml`, resolved when its batch is frozen."""

from __future__ import annotations

from orchestrations.contracts.base import ActivityRequest, Contract
from orchestrations.pipeline import Pipeline


class Configuration(Contract):
    """The configuration in force when it was resolved."""

    hash: str
    """The hash of both files' text, which the records container keeps under this hash."""
    pipeline: Pipeline


class ResolveConfiguration(ActivityRequest[Configuration]):
    """Input of `resolve_configuration`."""

    pipeline: str
