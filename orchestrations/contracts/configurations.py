"""The configuration of a batch and its run: resolved once, when the batch is frozen."""

from __future__ import annotations

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Contract


class Configuration(Contract):
    """The configuration in force when it was resolved."""

    hash: str
    """The hash of both files' text and of the code that the job names. The records container keeps
    the text under this hash."""
    pipeline: Pipeline
