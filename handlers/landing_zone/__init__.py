"""Landing zones: their blobs, and the records that Landfall keeps of them."""
