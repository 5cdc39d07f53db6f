"""How often weeks have what. The one place to switch a kind of item on or off."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.story import ConfigurationChange, Zone

ZONES: Mapping[Zone, float] = {
    "quiet": 5,
    "marked": 3,
    "daily": 2,
    "copied": 2,
    "queued": 2,
    "online": 3,
    "batch": 1,
}
"""Share of the weeks with each pipeline."""

DRAWN: Mapping[str, float] = {
    "nodes that are taken": 0.2,
    "refusals of the landing container": 0.1,
    "pipelines that are removed": 0.05,
    "drift signals": 0.15,
    "requests for known data": 0.1,
    "blobs that are forgotten": 0.1,
    "a bus that hangs beside people": 0.15,
    "models that are reproduced": 0.3,
    "promotions to production": 0.3,
    # In weeks with an endpoint:
    "models that break": 0.7,
    "hours without requests": 0.2,
    "outages of metrics": 0.4,
    "outages of scoring": 0.2,
    "people decide on rollouts": 0.3,
    "people start rollouts": 0.1,
    "people promote models": 0.1,
    "people roll models back": 0.1,
    "people delete the endpoint": 0.1,
}
"""Kind of item → the chance that a week has some."""

CHANGED: Mapping[ConfigurationChange, float] = {
    "include": 0.2,
    "exclude nothing": 0.1,
    "marker": 0.1,
    "no marker": 0.1,
    "settle": 0.2,
    "copies": 0.1,
    "no copies": 0.1,
    "shrinks": 0.1,
    "margin": 0.1,
    "challengers": 0.1,
    "retry": 0.2,
    "limits": 0.1,
    "notify": 0.1,
    "guards": 0.2,
    "steps": 0.2,
    "compute": 0.2,
    "checks": 0.15,
    "minimum change": 0.15,
    "jobs of checks": 0.2,
    "slices": 0.2,
    "windows": 0.2,
    "approvals": 0.2,
}
"""Change of `pipeline.yml` → the chance that a release has it."""
