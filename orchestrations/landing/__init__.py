"""The orchestrators that wait for a whole batch and freeze it, and their decisions."""
