"""The pipelines that weeks have."""

from pathlib import Path

PIPELINES_FOLDER = Path(__file__).parent / "pipelines"
QUEUED_PIPELINES_FOLDER = Path(__file__).parent / "queued_pipelines"
