"""Sweep steps of pipelines: converts their snake-case fields to a sweep job's. Pure.

https://learn.microsoft.com/azure/machine-learning/how-to-use-sweep-in-pipeline
"""

from __future__ import annotations

from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.sweeps.search_space import DISTRIBUTIONS


def sweep_properties(step: str, node: dict[str, Any], trial: dict[str, Any]) -> dict[str, Any]:
    """Convert a step's document to a sweep job's fields, except inputs and outputs.

    `trial` has the fields of a trial, such as command, code and environment.

    Raises:
        ArmError: 400, a distribution is unknown.
    """
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
        "objective": _camel_case(node, "objective"),
        "limits": {
            "jobLimitsType": "Sweep",
            **{
                key: _duration(value) if key.lower().endswith("timeout") else value
                for key, value in _camel_case(node, "limits").items()
            },
        },
        "earlyTermination": _camel_case(node, "early_termination") or None,
    }


def _distribution(where: str, entry: dict[str, Any]) -> list[Any]:
    kind = str(entry.get("type"))
    if kind not in DISTRIBUTIONS:
        raise invalid(f"{where}: distribution {kind!r} is not known")
    return [kind, [entry.get(argument) for argument in DISTRIBUTIONS[kind].arguments]]


def _duration(value: Any) -> str | None:
    return f"PT{value}S" if isinstance(value, int | float) else value


def _camel_case(node: dict[str, Any], field: str) -> dict[str, Any]:
    """A field of the step, with the REST API's keys in camel case."""
    words = {key: key.split("_") for key in node.get(field) or {}}
    return {
        first + "".join(map(str.capitalize, others)): node[field][key]
        for key, (first, *others) in words.items()
    }
