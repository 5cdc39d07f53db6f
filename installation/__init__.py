"""Makes the virtual environment that `make` runs everything in, with the standard library alone."""
