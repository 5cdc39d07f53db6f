"""Command jobs: their rows, their attempts, and the runner that has the processes of one."""
