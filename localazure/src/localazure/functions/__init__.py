"""The Functions host: loads any Azure Functions app (Python v2) and runs its triggers."""
