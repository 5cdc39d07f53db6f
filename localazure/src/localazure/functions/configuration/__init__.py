"""host.json, local.settings.json and connections."""
