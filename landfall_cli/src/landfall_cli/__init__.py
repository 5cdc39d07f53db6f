"""`landfall`, the command line for people on call; a client of the HTTP API only."""
