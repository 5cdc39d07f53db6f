"""Numbers of a run: error.json, TensorBoard, MLflow."""
