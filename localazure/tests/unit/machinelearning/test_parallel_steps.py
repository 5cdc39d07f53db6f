from __future__ import annotations

from typing import Any

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.parallel_steps import command_spec, input_name

SPEC: dict[str, Any] = {
    "inputs": {"files": {"type": "uri_folder"}, "table": {"type": "mltable"}},
    "outputs": {"rows": {"type": "uri_file"}, "folder": {"type": "uri_folder"}},
    "input_data": "${{inputs.files}}",
    "max_concurrency_per_instance": 3,
    "mini_batch_size": 0,
    "task": {"type": "run_function", "code": "c", "entry_script": "score.py", "environment": "e"},
}


def test_a_step_comes_before_its_component_and_has_the_defaults_of_the_sdk() -> None:
    node = {
        "resources": {"instance_count": 2},
        "retry_settings": {"max_retries": 0},
        "task": {"program_arguments": "--k\n${{inputs.k}}", "append_row_to": "${{outputs.rows}}"},
    }
    spec = command_spec("score", node, SPEC)
    assert (spec["code"], spec["environment"], spec["outputs"]) == ("c", "e", SPEC["outputs"])
    _, _, flags = spec["command"].partition("minibatches.py ")
    assert flags == (
        "--mini-batch-size=0 --workers=6 --error-threshold=-1 --mini-batch-error-threshold=-1 "
        '--max-retries=0 --timeout-seconds=60 --input "${{inputs.files}}" '
        '--append-row-to "${{outputs.rows}}" score.py -- --k ${{inputs.k}}'
    )
    assert input_name("score", node, SPEC) == "files"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"input_data": "files"}, "input_data is 'files'; use ${{inputs.name}}"),
        ({"task": {"append_row_to": "${{outputs.folder}}"}}, "an output of type uri_file"),
        ({"task": {"type": "model"}}, "task must be a run_function"),
        ({"mini_batch_size": "10kb"}, "mini_batch_size is '10kb'"),
        ({"mini_batch_size": "ten"}, "mini_batch_size is 'ten'"),
    ],
)
def test_what_is_not_covered_is_named(node: dict[str, Any], message: str) -> None:
    with pytest.raises(ArmError) as caught:
        command_spec("score", node, SPEC)
    assert caught.value.message.startswith("step 'score': ")
    assert message in caught.value.message


def test_a_table_is_cut_by_size_or_by_keys() -> None:
    node = {"input_data": "${{inputs.table}}"}
    by_size = command_spec("score", {**node, "mini_batch_size": "10kb"}, SPEC)["command"]
    assert "--mini-batch-size=10240 " in by_size
    assert '--input "${{inputs.table}}"' in by_size
    by_keys = command_spec("score", {**node, "partition_keys": ["Store", "a b"]}, SPEC)["command"]
    assert "--partition-key=Store --partition-key='a b' " in by_keys
