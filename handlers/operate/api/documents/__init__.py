"""The response models of the HTTP API, a module per resource; `/api/openapi.json` shows them."""
