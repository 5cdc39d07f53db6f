"""The features of the app, each with its part of the simulation in one module.

A week is drawn in this order. To add a feature: a module here, and its name in `MODULES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.features import (
    approvals,
    attempts,
    claims,
    compute,
    copies,
    data_rules,
    events,
    failing_landings,
    faults,
    forgetting,
    gate,
    hanging_bus,
    holding,
    jobs_of_checks,
    minimum_change,
    notifications,
    overwritten,
    pausing,
    preemption,
    promotions,
    redrives,
    reproductions,
    requests,
    rollouts,
    settling,
    shrunk,
    slices,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.feature import Change, Feature, Invariant, Mistake
    from tests.simulation.story import Story

MODULES = (
    settling,
    copies,
    shrunk,
    gate,
    attempts,
    notifications,
    failing_landings,
    requests,
    forgetting,
    preemption,
    hanging_bus,
    rollouts,
    compute,
    data_rules,
    minimum_change,
    jobs_of_checks,
    slices,
    windows,
    approvals,
    faults,
    reproductions,
    promotions,
    holding,
    redrives,
    claims,
    events,
    overwritten,
    pausing,
)
FEATURES: tuple[Feature, ...] = tuple(each.FEATURE for each in MODULES)
CHANGES: Mapping[str, Change] = {
    name: change for feature in FEATURES for name, change in feature.changes.items()
}
INVARIANTS: tuple[Invariant, ...] = tuple(it for each in FEATURES for it in each.invariants)
MISTAKES: Mapping[str, Mistake] = {
    name: mistake for feature in FEATURES for name, mistake in feature.mistakes.items()
}
KEPT: Mapping[str, Story] = {
    name: story for feature in FEATURES for name, story in feature.kept.items()
}
"""Stories that found defects, all of them mended."""
