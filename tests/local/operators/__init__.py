"""A package: what its conftest starts ends with its tests, and does not idle beside later ones."""
