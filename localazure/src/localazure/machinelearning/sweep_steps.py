"""Sweep steps of pipelines: from the snake case of a pipeline's steps to a sweep job. Pure.

https://learn.microsoft.com/azure/machine-learning/how-to-use-sweep-in-pipeline
"""

from __future__ import annotations

from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.search_space import DISTRIBUTIONS


def sweep_properties(step: str, node: dict[str, Any], trial: dict[str, Any]) -> dict[str, Any]:
    """Fields of a sweep job besides inputs and outputs.

    Args:
        step: its name, for errors.
        node: the step's document.
        trial: the command, code, environment and so on of a trial.

    Raises:
        ArmError: 400, a distribution is unknown.
    """
    objective: dict[str, Any] = node.get("objective") or {}
    limits: dict[str, Any] = node.get("limits") or {}
    algorithm: Any = node.get("sampling_algorithm") or "random"
    if isinstance(algorithm, str):
        algorithm = {"type": algorithm}
    return {
        "trial": trial,
        "searchSpace": {
            name: _distribution(f"step {step!r}: search_space.{name}", entry)
            for name, entry in (node.get("search_space") or {}).items()
        },
        "samplingAlgorithm": {
            "samplingAlgorithmType": str(algorithm.get("type")).capitalize(),
            "seed": algorithm.get("seed"),
            "rule": algorithm.get("rule"),
        },
        "objective": {
            "goal": str(objective.get("goal")).capitalize(),
            "primaryMetric": objective.get("primary_metric"),
        },
        "limits": {
            "jobLimitsType": "Sweep",
            "maxTotalTrials": limits.get("max_total_trials"),
            "maxConcurrentTrials": limits.get("max_concurrent_trials"),
            "timeout": _duration(limits.get("timeout")),
            "trialTimeout": _duration(limits.get("trial_timeout")),
        },
        "earlyTermination": {
            _camel(key): value for key, value in (node.get("early_termination") or {}).items()
        }
        or None,
    }


def _distribution(where: str, entry: dict[str, Any]) -> list[Any]:
    kind = str(entry.get("type"))
    if kind not in DISTRIBUTIONS:
        raise invalid(f"{where}: distribution {kind!r} is not known")
    return [kind, [entry.get(argument) for argument in DISTRIBUTIONS[kind].arguments]]


def _duration(value: Any) -> str | None:
    return f"PT{value}S" if isinstance(value, int | float) else value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
