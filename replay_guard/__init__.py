"""Replay guard: does the code at hand still fit the histories of orchestrations that are under way?

A tool for any Durable Functions app in Python (programming model v2), with a command line:

    python -m replay_guard export https://APP.azurewebsites.net --out histories
    python -m replay_guard check APP_FOLDER histories/*.json

It imports no host and no app; `check` loads the app's folder as the Functions worker does.
"""
