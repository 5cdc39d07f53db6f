"""Tasks of networks: from a batch to a loss, from held-out samples to scores."""
