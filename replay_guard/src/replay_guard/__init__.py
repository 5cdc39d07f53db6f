"""Replay guard: checks that an app's code still fits the histories of running orchestrations.

A tool for any Durable Functions app in Python (programming model v2). It imports no host and no
app; `check` loads the app's folder as the Functions worker does.
"""
