"""Parallel steps of pipelines, as commands that run the driver over mini-batches.

A parallel step is one command job. Its nodes are slots of this machine, so that one driver runs
the workers of all nodes.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-parallel
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.minibatches import IGNORE_ALL, Settings, shell_command

# Defaults that the SDK documents.
_RETRIES = 2
_TIMEOUT_SECONDS = 60

_REFERENCE = re.compile(
    r"^\s*\$\{\{\s*(?P<kind>inputs|outputs)\.(?P<name>[A-Za-z0-9_]+)\s*\}\}\s*$"
)
_SIZE = re.compile(r"^\s*(?P<number>\d+)\s*(?P<unit>|[kmg]?b)\s*$", re.IGNORECASE)
_UNIT_BYTES = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}


def command_spec(step: str, node: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Convert a parallel component to the specification of a command component.

    Args:
        step: the step's name, for errors.
        node: the step's document; its fields override the component's.
        spec: the specification of the parallel component.

    Raises:
        ArmError: 400, a field is missing, wrong, or not covered.
    """
    merged = {**spec, **{key: value for key, value in node.items() if value is not None}}
    task = {**(spec.get("task") or {}), **(node.get("task") or {})}
    if task.get("type") != "run_function" or not task.get("entry_script"):
        raise invalid(f"step {step!r}: task must be a run_function with an entry_script")
    rows = task.get("append_row_to") or ""
    if rows and _declared(step, "append_row_to", rows, "outputs", spec)[1] != "uri_file":
        raise invalid(f"step {step!r}: append_row_to must be an output of type uri_file")
    retries: dict[str, Any] = merged.get("retry_settings") or {}
    resources: dict[str, Any] = merged.get("resources") or {}
    concurrency = _number(step, merged, "max_concurrency_per_instance", os.cpu_count() or 1)
    settings = Settings(
        entry_script=Path(task["entry_script"]),
        inputs=(),
        mini_batch_size=_mini_batch_size(step, node, spec, merged.get("mini_batch_size")),
        partition_keys=tuple(merged.get("partition_keys") or ()),
        workers=concurrency * _number(step, resources, "instance_count", 1),
        error_threshold=_number(step, merged, "error_threshold", IGNORE_ALL),
        mini_batch_error_threshold=_number(step, merged, "mini_batch_error_threshold", IGNORE_ALL),
        max_retries=_number(step, retries, "max_retries", _RETRIES),
        timeout_seconds=_number(step, retries, "timeout", _TIMEOUT_SECONDS),
    )
    command = shell_command(
        settings,
        inputs=[f"${{{{inputs.{input_name(step, node, spec)}}}}}"],
        arguments=str(task.get("program_arguments") or "").replace("\n", " "),
        rows=rows,
    )
    return {
        **spec,
        "command": command,
        "code": task.get("code"),
        "environment": task.get("environment"),
    }


def input_name(step: str, node: dict[str, Any], spec: dict[str, Any]) -> str:
    """The input whose files or rows are divided into mini-batches.

    Raises:
        ArmError: 400, `input_data` does not name an input.
    """
    reference = str(node.get("input_data") or spec.get("input_data"))
    return _declared(step, "input_data", reference, "inputs", spec)[0]


def _mini_batch_size(step: str, node: dict[str, Any], spec: dict[str, Any], value: Any) -> int:
    """Number of files, or bytes of a table; 0 means the default (the SDK sends 0 for none)."""
    found = _SIZE.match(str(value or 0))
    declared: dict[str, Any] = (spec.get("inputs") or {})[input_name(step, node, spec)]
    if found is None or (found["unit"] and declared.get("type") != "mltable"):
        raise invalid(
            f"step {step!r}: mini_batch_size is {value!r}; it must be a number of files, or of an "
            "mltable a size such as 10kb"
        )
    return int(found["number"]) * _UNIT_BYTES[found["unit"].lower()]


def _declared(
    step: str, field: str, reference: str, kind: str, spec: dict[str, Any]
) -> tuple[str, str]:
    """The name and the type of the input or output that a field of the step references."""
    match = _REFERENCE.match(reference)
    declared: dict[str, Any] = spec.get(kind) or {}
    if match is None or match["kind"] != kind or match["name"] not in declared:
        raise invalid(f"step {step!r}: {field} is {reference!r}; use ${{{{{kind}.name}}}}")
    return match["name"], str(declared[match["name"]].get("type"))


def _number(step: str, document: dict[str, Any], field: str, default: int) -> int:
    value = document.get(field)
    if value in (None, ""):
        return default
    try:
        return int(value)
    except ValueError as error:
        raise invalid(f"step {step!r}: {field} is {value!r}; it must be a number") from error
