"""Processes of this machine: their lifetime, their locks, their ports."""
