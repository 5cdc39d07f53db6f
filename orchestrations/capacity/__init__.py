"""Which run gets which nodes: queues, quotas, fair shares, budgets."""
