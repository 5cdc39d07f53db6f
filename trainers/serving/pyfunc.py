"""A model folder as an MLflow model of the flavour `python_function`.

Beside the weights come `MLmodel`, the packages that are needed, and a copy of this package's source
in `code/`. Nothing is pickled: MLflow imports this module from there and calls `_load_pyfunc`.

`mlflow.pyfunc.load_model(folder).predict(rows)`: a data frame with a column `image`, each the
base64 of an image file or its bytes. The answer is a data frame with the columns `label` and
`probability`, of a detector `width`, `height` and `detections` (lists, see
`trainers.serving.detections`), which takes the parameter `score_threshold`.

Source: mlflow.org, "MLflow Models", storage format; `mlflow.pyfunc` (loader_module, code).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainers.files import write_atomically, write_json_atomically
from trainers.reports.provenance import sources
from trainers.serving.detections import SCORE_THRESHOLD
from trainers.serving.request import RequestInvalid, from_base64
from trainers.serving.scoring import Prediction, Scorer

if TYPE_CHECKING:
    import pandas as pd

_COLUMN = "image"
_THRESHOLD = "score_threshold"


def _required(kind: str, **further: Any) -> dict[str, Any]:
    return {"type": kind, **further, "required": True}


def _lists(of: str) -> dict[str, Any]:
    return _required("array", items={"type": of})


_INPUTS = [{"name": _COLUMN, **_required("string")}]
_LABELS = [
    {"name": "label", **_required("string")},
    {"name": "probability", **_required("double")},
]
_MASK = {"type": "object", "properties": {"size": _lists("long"), "counts": _required("string")}}
_DETECTION = {
    "label": _required("string"),
    "score": _required("double"),
    "box": _lists("double"),
    "mask": {**_MASK, "required": False},
}
_DETECTIONS = [
    {"name": "width", **_required("long")},
    {"name": "height", **_required("long")},
    {
        "name": "detections",
        **_required("array", items={"type": "object", "properties": _DETECTION}),
    },
]
_PARAMETERS = [{"name": _THRESHOLD, "type": "double", "default": SCORE_THRESHOLD, "shape": None}]


def write_flavour(folder: Path, versions: Mapping[str, str], *, detects: bool) -> None:
    """Make a model folder one of MLflow, too.

    Args:
        folder: the model folder.
        versions: of Python, under the name python, and of the packages that are needed.
        detects: whether the model is a detector.
    """
    signature: dict[str, Any] = {"inputs": _INPUTS, "outputs": _LABELS}
    if detects:
        signature |= {"outputs": _DETECTIONS, "params": _PARAMETERS}
    for name, content in sources().items():
        write_atomically(folder / "code" / "trainers" / name, content)
    packages = [f"{name}=={version}" for name, version in versions.items() if name != "python"]
    write_atomically(folder / "requirements.txt", "".join(f"{p}\n" for p in packages).encode())
    # JSON is YAML, which MLflow reads these as.
    environment = {"python": versions["python"], "dependencies": ["-r requirements.txt"]}
    write_json_atomically(folder / "python_env.yaml", environment)
    write_json_atomically(
        folder / "MLmodel",
        {
            "flavors": {
                "python_function": {
                    "loader_module": __name__,
                    "code": "code",
                    "env": {"virtualenv": "python_env.yaml"},
                    "python_version": versions["python"],
                }
            },
            "signature": {name: json.dumps(value) for name, value in signature.items()},
        },
    )


class PyFunc:
    """The model behind `mlflow.pyfunc.load_model`."""

    def __init__(self, folder: Path) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._scorer = Scorer(folder, device)

    def predict(
        self, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Label images, or detect objects; see the module.

        Raises:
            RequestInvalid: a file is not an image, or the threshold is not a number from 0 to 1.
        """
        import pandas as pd  # noqa: PLC0415  # MLflow brings it; training does without

        if _COLUMN not in model_input:
            raise RequestInvalid(f"expected a column {_COLUMN!r}, got {list(model_input)}")
        files = [
            image if isinstance(image, bytes) else from_base64(number, image)
            for number, image in enumerate(model_input[_COLUMN].tolist())
        ]
        threshold = (params or {}).get(_THRESHOLD)
        predictions: list[Prediction] = self._scorer.predict(files, threshold)
        columns = _DETECTIONS if self._scorer.detects else _LABELS
        return pd.DataFrame(predictions, columns=[column["name"] for column in columns])


def _load_pyfunc(path: str) -> PyFunc:  # pyright: ignore[reportUnusedFunction]  # by MLflow
    """Called by MLflow with the model's folder."""
    return PyFunc(Path(path))
