"""Checks `infra/` and `azure.yaml` without Azure and Bicep's compiler: see docs/deploy.md."""
