"""Azure ML's SDK, its errors, and the tags of Landfall's entities."""
