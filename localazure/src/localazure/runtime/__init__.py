"""What the parts stand on: the environment of a state folder, identities, roles, HTTP listeners."""
