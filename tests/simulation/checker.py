"""What is wrong with a simulated week: the invariants of all features."""

from __future__ import annotations

from tests.simulation.evidence import Evidence
from tests.simulation.features import INVARIANTS
from tests.simulation.world import World


def check(world: World) -> list[str]:
    """Everything that is wrong, as `invariant: what`."""
    evidence = Evidence(world)
    return [
        f"{invariant.__name__}: {problem}"
        for invariant in INVARIANTS
        for problem in invariant(evidence)
    ]
