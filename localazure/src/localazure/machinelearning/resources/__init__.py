"""The workspace's REST resources: one module per family, each with its `routes`."""
