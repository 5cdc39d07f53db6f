"""The scoring script for MLflow models without a script.

Request: `{"input_data": …}` with a table `{"columns", "index"?, "data"}`, an array as a list, or
arrays by name. Response: the predictions.
https://learn.microsoft.com/azure/machine-learning/how-to-deploy-mlflow-models#input-data-types
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, cast

# mlflow.pyfunc needs pandas, and mlflow-skinny does not require it.
import pandas as pd  # noqa: F401 # pyright: ignore[reportUnusedImport]
from mlflow.pyfunc import PyFuncModel, load_model
from mlflow.pyfunc.scoring_server import infer_and_parse_data, predictions_to_json

MODEL_FILE = "MLmodel"
INPUT = "input_data"

_loaded: list[PyFuncModel] = []


def init() -> None:
    """Load the model.

    Raises:
        FileNotFoundError: the folder has no MLflow model.
    """
    folder = Path(os.environ["AZUREML_MODEL_DIR"])
    models = sorted(folder.rglob(MODEL_FILE))
    if not models:
        raise FileNotFoundError(f"no {MODEL_FILE} in the model: it is not an MLflow model")
    _loaded[:] = [load_model(str(models[0].parent))]


def run(data: str) -> Any:
    """Return the model's predictions.

    Raises:
        ValueError: the request has no `input_data`.
        MlflowException: the data does not fit the model's signature.
    """
    (model,) = _loaded
    request = json.loads(data)
    if not isinstance(request, dict) or INPUT not in request:
        raise ValueError(f"Request must contain a top level key named '{INPUT}'")
    value = cast("dict[str, Any]", request)[INPUT]
    is_table = isinstance(value, dict) and {"columns", "data"} <= value.keys()
    schema: Any = model.metadata.get_input_schema()
    parsed: Any = infer_and_parse_data({"dataframe_split" if is_table else "inputs": value}, schema)
    answer = io.StringIO()
    predictions_to_json(model.predict(parsed), answer)
    return json.loads(answer.getvalue())["predictions"]
