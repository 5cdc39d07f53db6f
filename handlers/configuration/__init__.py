"""Settings, SDK clients, pipeline files, records."""
