"""What the API shows before and after a task, for both ways to do it."""

from __future__ import annotations

from typing import Any

import yaml

from tests.local.operators.conftest import AGAIN, Laptop
from tests.replay.situations import pipeline_document


async def runs_of(laptop: Laptop, pipeline: str) -> list[Any]:
    return (await laptop.get(f"/api/runs?pipeline={pipeline}"))[1]["runs"]


async def has_run(laptop: Laptop, pipeline: str, version: str) -> None:
    """Wait for a run on a dataset version; it may first wait for nodes."""
    await laptop.until(
        f"/api/runs?pipeline={pipeline}",
        lambda found: version in {each["dataset_version"] for each in found["runs"]},
    )


async def follows(laptop: Laptop, failed: str, following: str) -> None:
    """Wait until `following` has begun as the next attempt of the run `failed`."""
    begun = await laptop.until(f"/api/runs/{following}", lambda found: found.get("links"))
    assert begun["redriven_from"] == begun["previous_attempt"] == failed
    _, first, _ = await laptop.get(f"/api/runs/{failed}")
    assert first["links"]["redriven_as"] == following


async def trained_again(laptop: Laptop, requested: str, seed: int) -> str:
    """Wait for the run of a request: it has the seed, and so has the model that it registers."""
    landing = await laptop.until(f"/api/runs/{requested}", lambda found: found["run"] and found)
    assert landing["outcome"] in (None, "started")
    run = await laptop.until(
        f"/api/runs/{landing['run']}", lambda found: found.get("model") and found
    )
    assert run["parameters"] == {"seed": seed}
    _, model, _ = await laptop.get(f"/api/pipelines/{AGAIN}/models/{run['model']['version']}")
    assert model["parameters"] == {"seed": seed}
    return landing["run"]


def file_of_batches(floor: float) -> str:
    """`pipeline.yml` of the pipeline `batches`, with another gate."""
    document = pipeline_document("batches")
    document["gate"]["floor"] = floor
    return yaml.safe_dump(document)


KEPT_BACK = (
    "accuracy 0.9: better than champion 1 by 30 points, p < 0.0001, 1,000 samples, but label:7 "
    "fell by 30 points (p < 0.0001, n = 200, gate.slices allows 5 points)"
)
