"""The runtime: environment of a state folder, its parts as processes, and their supervisor."""
