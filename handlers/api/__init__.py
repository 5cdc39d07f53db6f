"""The resources of the HTTP API for people on call, their documents, and the operators' page."""
