"""Sweep jobs: specification, documents of trials, and the next actions. Pure.

Rules of `next_step`, applied to the states of all trials:

1. A cancelled sweep cancels its trials, and ends after its last trial.
2. The early termination policy ends running trials.
3. New trials start, up to `maxConcurrentTrials` at once and `maxTotalTrials` in all.
4. When all trials have ended, the sweep ends: Completed if any trial is completed, else Failed.
   The best trial is the completed trial that has logged the best value of the primary metric.

https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.fields import read_count, read_seconds
from localazure.machinelearning.jobs.states import TERMINAL, JobStatus
from localazure.machinelearning.sweeps.early_termination import (
    Goal,
    Policy,
    Trial,
    parse_policy,
    trials_to_end,
)
from localazure.machinelearning.sweeps.search_space import (
    Parameter,
    draw_grid,
    draw_random,
    draw_sobol,
    grid_size,
    parse_search_space,
)

# https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-sweep: limits
DEFAULT_TOTAL_TRIALS = 1000
MOST_TRIALS = 1000
DEFAULT_TIMEOUT = "P7D"
_ASSET = {"assetName", "assetVersion"}
"""What registers an output: of the sweep, not of each trial."""

_SEARCH_SPACE = re.compile(r"\$\{\{\s*search_space\.(?P<name>[A-Za-z0-9_.-]+)\s*\}\}")
_SAMPLERS = {"grid", "random", "bayesian"}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The specification of one sweep."""

    space: tuple[Parameter, ...]
    sampler: str
    """`grid`, `random` or `sobol`."""
    seed: int | None
    goal: Goal
    metric: str
    total: int
    concurrent: int
    timeout_seconds: float
    policy: Policy | None

    def draw(self, name: str, number: int) -> dict[str, Any]:
        """The hyperparameters of a trial.

        Args:
            name: the sweep's name; also the default seed, so that a restart repeats the draws.
            number: the trial's number, from 0.
        """
        match self.sampler:
            case "grid":
                return draw_grid(self.space, number)
            case "sobol":
                return draw_sobol(self.space, number, self.seed or 0)
            case _:
                seed = name if self.seed is None else str(self.seed)
                return draw_random(self.space, number, seed)


@dataclass(frozen=True, kw_only=True)
class SweepStep:
    """The next actions of a sweep."""

    start: tuple[int, ...] = ()
    """Numbers of the trials to submit."""
    end_early: tuple[str, ...] = ()
    """Running trials that the policy ends."""
    cancel: tuple[str, ...] = ()
    status: JobStatus | None = None
    """The final state of the sweep, if it has ended."""


def parse_sweep(name: str, properties: dict[str, Any]) -> Sweep:
    """Check a sweep job's document.

    Raises:
        ArmError: 400, the sweep could not run.
    """
    trial: dict[str, Any] = properties.get("trial") or {}
    for field in ("command", "environmentId"):
        if not isinstance(trial.get(field), str):
            raise invalid(f"sweep {name!r}: trial.{field} is missing")
    space = parse_search_space(properties.get("searchSpace") or {})
    objective: dict[str, Any] = properties.get("objective") or {}
    # The SDK sends the goal in lower case, as in the YAML file.
    goal = str(objective.get("goal")).capitalize()
    metric = objective.get("primaryMetric")
    if goal not in [*Goal] or not isinstance(metric, str) or not metric.isprintable():
        raise invalid(f"sweep {name!r}: objective needs a goal and a primaryMetric")
    limits: dict[str, Any] = properties.get("limits") or {}
    algorithm: dict[str, Any] = properties.get("samplingAlgorithm") or {}
    sampler = str(algorithm.get("samplingAlgorithmType") or "Random").lower()
    if sampler not in _SAMPLERS:
        raise invalid(f"sweep {name!r}: sampling {sampler!r} is not known")
    total = _trials(limits, "maxTotalTrials") or DEFAULT_TOTAL_TRIALS
    if sampler == "grid":
        total = min(total, grid_size(space))
    elif str(algorithm.get("rule") or "").lower() == "sobol":
        sampler = "sobol"
    seed = algorithm.get("seed")
    if seed is not None and not isinstance(seed, int):
        raise invalid(f"samplingAlgorithm.seed is {seed!r}; it must be a whole number")
    sweep = Sweep(
        space=space,
        sampler=sampler,
        seed=seed,
        goal=Goal(goal),
        metric=metric,
        total=total,
        concurrent=min(_trials(limits, "maxConcurrentTrials") or total, total),
        timeout_seconds=read_seconds("limits.timeout", limits.get("timeout") or DEFAULT_TIMEOUT),
        policy=parse_policy(properties.get("earlyTermination")),
    )
    sweep.draw(name, 0)
    return sweep


def _trials(limits: dict[str, Any], key: str) -> int | None:
    return read_count(limits, key, path="limits.", most=MOST_TRIALS)


def next_step(sweep: Sweep, status: JobStatus, trials: Sequence[Trial]) -> SweepStep:
    """Apply the rules of the module's docstring once."""
    unfinished = [trial for trial in trials if trial.status not in TERMINAL]
    if status is JobStatus.CANCEL_REQUESTED:
        if not unfinished:
            return SweepStep(status=JobStatus.CANCELED)
        return SweepStep(cancel=tuple(trial.name for trial in unfinished))
    if len(trials) >= sweep.total and not unfinished:
        is_any_complete = any(trial.status is JobStatus.COMPLETED for trial in trials)
        return SweepStep(status=JobStatus.COMPLETED if is_any_complete else JobStatus.FAILED)
    room = min(sweep.concurrent - len(unfinished), sweep.total - len(trials))
    ended = () if sweep.policy is None else trials_to_end(sweep.policy, sweep.goal, trials)
    return SweepStep(
        start=tuple(range(len(trials), len(trials) + max(0, room))),
        end_early=tuple(sorted(ended)),
    )


def best_trial(sweep: Sweep, trials: Sequence[Trial]) -> tuple[str, float] | None:
    """Name and metric of the best completed trial; None if none has logged the metric."""
    scores = {
        trial.name: sweep.goal.best(trial.values)
        for trial in trials
        if trial.status is JobStatus.COMPLETED and trial.values
    }
    if not scores:
        return None
    best = sweep.goal.best([*scores.values()])
    return next((name, score) for name, score in scores.items() if score == best)


def trial_name(sweep: str, number: int) -> str:
    """The name of a trial on Azure ML."""
    return f"{sweep}_{number}"


def trial_properties(
    name: str, properties: dict[str, Any], number: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The `properties` of a trial, which is a command job.

    Args:
        name: the sweep's name.
        properties: the sweep's properties.
        number: the trial's number.
        values: the trial's hyperparameters. A command uses them as `${{search_space.x}}`; a
            component's command uses them as literal inputs.
    """
    trial: dict[str, Any] = properties["trial"]
    inputs: dict[str, Any] = properties.get("inputs") or {}
    literals = {
        key: {"jobInputType": "literal", "value": _text(value)} for key, value in values.items()
    }
    limits: dict[str, Any] = properties.get("limits") or {}
    timeout = limits.get("trialTimeout")
    return {
        "jobType": "Command",
        "displayName": trial_name(name, number),
        "experimentName": properties.get("experimentName"),
        "command": _substituted(name, trial["command"], values),
        "codeId": trial.get("codeId"),
        "environmentId": trial["environmentId"],
        "environmentVariables": trial.get("environmentVariables") or {},
        "distribution": trial.get("distribution"),
        "resources": properties.get("resources") or trial.get("resources") or {},
        "computeId": properties.get("computeId"),
        "limits": {"jobLimitsType": "Command", "timeout": timeout} if timeout else None,
        "inputs": {**inputs, **literals},
        "outputs": {
            key: {field: value for field, value in entry.items() if field not in _ASSET}
            for key, entry in (properties.get("outputs") or {}).items()
        },
        "tags": {"hyperparameters": json.dumps(dict(values))},
        "properties": {},
    }


def _substituted(name: str, command: str, values: Mapping[str, Any]) -> str:
    def replace(match: re.Match[str]) -> str:
        if match["name"] not in values:
            raise invalid(
                f"sweep {name!r}: the command uses {match[0]}, which is not in the search space"
            )
        return _text(values[match["name"]])

    return _SEARCH_SPACE.sub(replace, command)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
