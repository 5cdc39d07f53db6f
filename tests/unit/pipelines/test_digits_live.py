"""The scoring script beside pipelines/digits-live, with the model of the template's program."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from handlers.platform.settings import APP_FOLDER

FOLDER = APP_FOLDER / "pipelines" / "digits-live"


Run = Callable[[str], dict[str, str]]


def request(shade: int) -> str:
    buffer = io.BytesIO()
    Image.new("L", (8, 8), shade).save(buffer, "PNG")
    return json.dumps({"image": base64.b64encode(buffer.getvalue()).decode()})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run` of the script; black images are of label 0, grey ones of label 1."""
    (tmp_path / "model").mkdir()
    means = {str(n): np.full(16 * 16, n / 2, np.float32) for n in (0, 1)}
    save_file(means, tmp_path / "model" / "model.safetensors")
    monkeypatch.setenv("AZUREML_MODEL_DIR", str(tmp_path))
    spec = importlib.util.spec_from_file_location("score", FOLDER / "serving" / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.init()
    return module.run


def test_an_image_gets_the_label_of_the_nearest_mean(
    run: Run,
) -> None:
    assert run(request(30)) == {"label": "0"}
    assert run(request(110)) == {"label": "1"}


def test_an_image_like_none_of_the_training_is_refused(
    run: Run,
) -> None:
    with pytest.raises(ValueError, match=r"at 0\.50 of the nearest label, 1; 0\.27 is the most"):
        run(request(255))
