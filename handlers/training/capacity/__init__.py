"""The nodes that runs request, hold and return."""
