"""Other engines, each a process in an environment of its own (`.venv/peers`)."""
