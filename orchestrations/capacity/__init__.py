"""Assignment of nodes to runs: queues, quotas, fair shares, budgets."""
