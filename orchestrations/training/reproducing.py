"""The verdict of a reproduction, in place of the gate's: nothing is registered."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from orchestrations.contracts.reproductions import (
    CompareReproduction,
    Reproduces,
    Reproduction,
    ReproductionFacts,
)
from orchestrations.platform.activities import call
from orchestrations.training.judging import wanted_metrics
from orchestrations.training.run_progress import RunProgress

NAMES_TOLD = 8


def conclude_reproduction(
    run: RunProgress, reproduces: Reproduces, failure: str | None = None
) -> Generator[Any, Any, bool]:
    """End the run with what differs; `failure` says why its data is not the original's any more."""
    if failure is None:
        asked = CompareReproduction(
            pipeline=run.request.pipeline.name,
            run=run.id,
            reproduces=reproduces,
            metrics=list(wanted_metrics(run.request.pipeline, "training")),
        )
        facts = yield from call(run.context, asked)
        answer = judge_reproduction(reproduces, facts)
    else:
        message = f"differs: its data: {failure}"
        answer = Reproduction(reproduces=reproduces, equal=None, message=message)
    run.note(reproduction=answer)
    event = "model_reproduced" if answer.equal else "model_not_reproduced"
    run.advance(event, reason=answer.message)
    return True


def judge_reproduction(reproduces: Reproduces, facts: ReproductionFacts) -> Reproduction:
    """Bits are equal, or else the gate's metrics within the tolerance, or else it differs. Pure.

    Whatever differs is named, also if it does not decide, such as the speed of the training.
    """
    tolerance, differences = reproduces.tolerance, facts.differences
    off = [
        f"{name} was {then}, and is {now}"
        for name, (then, now) in facts.metrics.items()
        if then != now and not math.isclose(_or_nan(then), _or_nan(now), rel_tol=tolerance)
    ]
    if facts.files and not facts.files_differ:
        equal, said = "bits", f"bits equal: the model's files are those of {reproduces.model}"
    elif not off:
        equal, said = "metrics", f"metrics equal within {tolerance:g}"
    else:
        equal, said = None, f"differs by more than {tolerance:g}: {', '.join(off)}"
    if differences:
        more = len(differences) + facts.more - NAMES_TOLD
        names = ", ".join(each.what for each in differences[:NAMES_TOLD])
        said += f"; not the same: {names}" + (f" and {more} more" if more > 0 else "")
    return Reproduction(
        reproduces=reproduces, equal=equal, message=said, differences=differences, more=facts.more
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
