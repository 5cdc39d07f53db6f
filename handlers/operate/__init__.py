"""For operators: the API, the page, alarms, reconciliation, retention, dead letters."""
