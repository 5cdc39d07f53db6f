"""Numbers and pictures of a run: files, TensorBoard, MLflow."""
