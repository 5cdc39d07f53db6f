"""What lies in a landing zone, and the records that Landfall keeps of it."""
