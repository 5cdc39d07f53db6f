"""The durable engine: pure decisions, no I/O and no clock.

Public: a test of an app may run its orchestrators with this package, under a clock and faults of
its own. An episode is `episode.begin`, the orchestrator's answer (`decision`), `episode.conclude`;
`localazure.functions.worker.orchestrators` calls the orchestrator as the host does.
"""
