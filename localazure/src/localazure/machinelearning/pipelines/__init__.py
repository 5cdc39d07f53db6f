"""Pipeline jobs: the graph of steps, and the job of each step."""
