"""What people are shown of runs: a record of each, and an index of all of them."""
