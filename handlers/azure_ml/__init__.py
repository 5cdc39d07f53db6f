"""Activities on Azure Machine Learning."""
