"""The configuration of a run: `pipeline.yml` and `job.yml`, resolved when its batch is frozen."""

from __future__ import annotations

from orchestrations.contracts.base import ActivityRequest, Contract
from orchestrations.pipeline import Pipeline


class Configuration(Contract):
    """A pipeline as it was in force at one moment."""

    hash: str
    """Of both files' text together; their text is kept in the records container under it."""
    pipeline: Pipeline


class ResolveConfiguration(ActivityRequest[Configuration]):
    """Input of `resolve_configuration`."""

    pipeline: str
