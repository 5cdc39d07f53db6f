"""What every orchestrator stands on: calls of activities, retries, timers, traces."""
