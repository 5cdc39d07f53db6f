"""Reports of a run: error.json, its speed, TensorBoard and MLflow."""
