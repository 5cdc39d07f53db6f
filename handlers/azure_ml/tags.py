"""Tags on what Landfall makes in Azure ML: by them it knows its own again after a crash."""

from __future__ import annotations

from typing import Any

RUN = "landfall.run"
PIPELINE = "landfall.pipeline"
DATASET_VERSION = "landfall.dataset-version"
ATTEMPT = "landfall.attempt"
CHAMPION = "landfall.champion"


def tags_of(resource: Any) -> dict[str, str]:
    """The tags of an Azure ML entity; the SDK has None where there are none."""
    return resource.tags or {}
