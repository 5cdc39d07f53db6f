"""The HTTP API, its routes and documents, and the operators' page."""
