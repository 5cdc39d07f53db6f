"""The answers of the HTTP API, a file for each resource. `/api/openapi.json` is made of them."""
