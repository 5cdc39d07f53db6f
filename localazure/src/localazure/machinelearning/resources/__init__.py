"""The workspace's REST resources: one module a family, each with its `routes`."""
