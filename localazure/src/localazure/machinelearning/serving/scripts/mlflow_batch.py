"""The scoring script for MLflow models in batch deployments without a script.

Each file is one table: csv, tsv, parquet, json or jsonl. A result is `[file, prediction]`.
https://learn.microsoft.com/azure/machine-learning/how-to-mlflow-batch
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.pyfunc import PyFuncModel, load_model

MODEL_FILE = "MLmodel"
READERS: dict[str, Callable[[str], pd.DataFrame]] = {
    ".csv": pd.read_csv,
    ".tsv": partial(pd.read_csv, sep="\t"),
    ".parquet": pd.read_parquet,
    ".json": pd.read_json,
    ".jsonl": partial(pd.read_json, lines=True),
}

_loaded: list[PyFuncModel] = []


def init() -> None:
    """Load the model.

    Raises:
        FileNotFoundError: the folder has no MLflow model.
    """
    models = sorted(_files(Path(os.environ["AZUREML_MODEL_DIR"])))
    if not models:
        raise FileNotFoundError(f"no {MODEL_FILE} in the model: it is not an MLflow model")
    _loaded[:] = [load_model(str(models[0].parent))]


def run(mini_batch: list[str]) -> list[list[Any]]:
    """Return a result for each row of each file.

    Raises:
        ValueError: the type of a file is not covered.
        MlflowException: the data does not fit the model's signature.
    """
    (model,) = _loaded
    results: list[list[Any]] = []
    for file in map(Path, mini_batch):
        if file.suffix not in READERS:
            raise ValueError(f"{file.name}: only {', '.join(READERS)} files are covered")
        predictions: Any = model.predict(READERS[file.suffix](str(file)))
        values = predictions.to_numpy() if hasattr(predictions, "to_numpy") else predictions
        as_list: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
        results += [[file.name, each] for each in as_list]
    return results


def _files(folder: Path) -> list[Path]:
    # The model's folder is a link, and rglob does not follow links.
    return [each for top in folder.iterdir() for each in top.resolve().rglob(MODEL_FILE)]
