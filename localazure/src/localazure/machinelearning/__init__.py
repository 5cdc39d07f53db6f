"""A local Azure ML workspace: ARM REST for the azure-ai-ml SDK, and compute that runs jobs."""
