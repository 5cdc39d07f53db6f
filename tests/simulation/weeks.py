"""Weeks of a few items, and items that many of them begin with."""

from __future__ import annotations

from tests.simulation.story import DAY, HOUR, Deploy, Item, JobEnd, JobFate, Story, Upload, Zone

UPLOADED_AT = 1_000.0
UPLOAD = Upload(at=UPLOADED_AT, path="1.png", content="one")
UPLOAD_AT_THE_END = Upload(at=6.9 * DAY, path="1.png", content="one")
FIRST = Upload(at=HOUR, path="1.png", content="one")
LATER = 8 * HOUR
"""When another upload leads to a second model."""
TWO_MODELS = (FIRST, Upload(at=LATER, path="2.png", content="two"))


def first_job(end: JobEnd) -> JobFate:
    """How the first job ends."""
    return JobFate(number=1, end=end)


def release_with(*changes: str, at: float = 2 * HOUR, floor: float = 0.5) -> Deploy:
    """A release with changes of `pipeline.yml`."""
    return Deploy(at=at, floor=floor, changes=changes)


def quiet_week(*items: Item, seed: int = 1) -> Story:
    """A week with few faults."""
    return week("quiet", *items, seed=seed)


def week(zone: Zone, *items: Item, seed: int = 1) -> Story:
    """A week of a pipeline."""
    return Story(seed=seed, zone=zone, reconcile_every=4 * HOUR, items=items)
