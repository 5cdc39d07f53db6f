"""The verdict of a reproduction, in place of the gate's: nothing is registered."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import Any

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.reproductions import (
    CompareReproduction,
    Difference,
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
        pipeline = run.request.pipeline
        asked = CompareReproduction(pipeline=pipeline.name, run=run.id, reproduces=reproduces)
        facts = yield from call(run.context, asked)
        answer = judge_reproduction(reproduces, facts, pipeline)
    else:
        answer = _answer(reproduces, equal=None, message=f"differs: its data: {failure}")
    run.note(reproduction=answer)
    event = "model_reproduced" if answer.equal else "model_not_reproduced"
    run.advance(event, reason=answer.message)
    return True


def judge_reproduction(
    reproduces: Reproduces, facts: ReproductionFacts, pipeline: Pipeline
) -> Reproduction:
    """Bits are equal, or else the gate's metrics within the tolerance, or else it differs. Pure.

    Whatever differs is named, also if it does not decide, such as the speed of the training.
    """
    wanted, tolerance = wanted_metrics(pipeline, "training"), reproduces.tolerance
    off = [
        f"{name} was {then}, and is {now}"
        for name, (then, now) in facts.metrics.items()
        if name in wanted and not _is_close(then, now, tolerance)
    ]
    differences = (*facts.settings, *_metrics(facts), *facts.differing)
    if facts.files and not facts.differing:
        equal, said = "bits", f"bits equal: all files of {reproduces.model} ({facts.files})"
    elif not off:
        equal, said = "metrics", f"metrics equal within {tolerance:g}"
    else:
        equal, said = None, f"differs by more than {tolerance:g}: {', '.join(off)}"
    if differences:
        names = ", ".join(each.what for each in differences[:NAMES_TOLD])
        more = len(differences) + facts.more - NAMES_TOLD
        said += f"; not the same: {names}" + (f" and {more} more" if more > 0 else "")
    return _answer(reproduces, equal=equal, message=said, differences=differences, more=facts.more)


def _answer(reproduces: Reproduces, **found: Any) -> Reproduction:
    return Reproduction(
        model=reproduces.model,
        original=reproduces.run,
        tolerance=reproduces.tolerance,
        **found,
    )


def _metrics(facts: ReproductionFacts) -> Iterator[Difference]:
    for name, (then, now) in sorted(facts.metrics.items()):
        yield Difference(what=f"metric {name}", original=_shown(then), again=_shown(now))


def _shown(value: float | None) -> str | None:
    return None if value is None else repr(value)


def _is_close(then: float | None, now: float | None, tolerance: float) -> bool:
    return then is not None and now is not None and math.isclose(then, now, rel_tol=tolerance)
