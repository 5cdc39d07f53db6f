"""Tags by which Landfall recognizes its own Azure ML resources after a crash."""

from __future__ import annotations

from typing import Any

RUN = "landfall.run"
PIPELINE = "landfall.pipeline"
DATASET_VERSION = "landfall.dataset-version"
ROUND = "landfall.round"
"""The round of training on the dataset version; the first has no tag."""
ATTEMPT = "landfall.attempt"
CHAMPION = "landfall.champion"
CHAMPION_LEAD = "landfall.champion-lead"
GAIN = "landfall.gain"
ROLE = "landfall.role"
CHALLENGER = "challenger"
IN_SERVICE = "landfall.in-service"
IN_SERVICE_SINCE = "landfall.in-service-since"
REPLACED = "landfall.replaced"
ROLLED_BACK_AT = "landfall.rolled-back-at"
CONFIGURATION = "landfall.configuration"
REDRIVEN_FROM = "landfall.redriven-from"
ROLLOUT = "landfall.rollout"
ROLLOUT_OUTCOME = "landfall.rollout-outcome"
MODEL = "landfall.model"
TRACEPARENT = "landfall.traceparent"
RESULTS_CONTAINER = "landfall.results-container"


def tags_of(resource: Any) -> dict[str, str]:
    """The tags of an Azure ML entity; the SDK has None for no tags."""
    return resource.tags or {}
