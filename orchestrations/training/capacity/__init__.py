"""Decides which runs get nodes."""
