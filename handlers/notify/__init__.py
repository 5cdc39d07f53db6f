"""Tells receivers and operators: notifications, alerts, dead letters."""
