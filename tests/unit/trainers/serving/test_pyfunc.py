from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow.models import Model

from trainers.reports import provenance
from trainers.serving import pyfunc
from trainers.serving.detections import SCORE_THRESHOLD


@pytest.mark.parametrize(
    ("detects", "columns"),
    [(False, ["label", "probability"]), (True, ["width", "height", "detections"])],
)
def test_mlflow_reads_what_comes_in_and_out(
    *, detects: bool, columns: list[str], tmp_path: Path
) -> None:
    pyfunc.write_flavour(tmp_path, provenance.versions(), detects=detects)
    signature = Model.load(str(tmp_path)).signature
    assert signature.inputs.input_names() == ["image"]
    assert signature.outputs.input_names() == columns
    if not detects:
        assert signature.params is None
        return
    [threshold] = signature.params.params
    assert (threshold.name, threshold.default) == ("score_threshold", SCORE_THRESHOLD)
    found = json.loads(signature.outputs.to_json())[2]["items"]["properties"]
    assert found.keys() == {"label", "score", "box", "mask"}
    assert not found["mask"]["required"]
