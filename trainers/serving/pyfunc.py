"""A model folder as an MLflow model of the flavour `python_function`.

Beside the weights come `MLmodel`, the packages that are needed, and a copy of this package's source
in `code/`. Nothing is pickled: MLflow imports this module from there and calls `_load_pyfunc`.

`mlflow.pyfunc.load_model(folder).predict(rows)`: a data frame with a column `image`, each the
base64 of an image file or its bytes. The answer is a data frame with the columns `label` and
`probability`.

Source: mlflow.org, "MLflow Models", storage format; `mlflow.pyfunc` (loader_module, code).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainers.files import write_atomically, write_json_atomically
from trainers.reports.provenance import sources
from trainers.serving.scoring import Prediction, RequestInvalid, Scorer, from_base64

if TYPE_CHECKING:
    import pandas as pd

_COLUMN = "image"
_INPUTS = '[{"name": "image", "type": "string", "required": true}]'
_OUTPUTS = (
    '[{"name": "label", "type": "string", "required": true}, '
    '{"name": "probability", "type": "double", "required": true}]'
)


def write_flavour(folder: Path, versions: Mapping[str, str]) -> None:
    """Make a model folder one of MLflow, too.

    Args:
        folder: the model folder.
        versions: of Python, under the name python, and of the packages that are needed.
    """
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
            "signature": {"inputs": _INPUTS, "outputs": _OUTPUTS},
        },
    )


class PyFunc:
    """What `mlflow.pyfunc.load_model` wraps."""

    def __init__(self, folder: Path) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._scorer = Scorer(folder, device)

    def predict(
        self, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Label images; see the module.

        Raises:
            RequestInvalid: something is no image.
        """
        import pandas as pd  # noqa: PLC0415  # MLflow brings it; training does without

        del params
        if _COLUMN not in model_input:
            raise RequestInvalid(f"expected a column {_COLUMN!r}, got {list(model_input)}")
        files = [
            image if isinstance(image, bytes) else from_base64(number, image)
            for number, image in enumerate(model_input[_COLUMN].tolist())
        ]
        predictions: list[Prediction] = self._scorer.predict(files)
        return pd.DataFrame(predictions, columns=["label", "probability"])


def _load_pyfunc(path: str) -> PyFunc:  # pyright: ignore[reportUnusedFunction]  # by MLflow
    """Called by MLflow with the model's folder."""
    return PyFunc(Path(path))
