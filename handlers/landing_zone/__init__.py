"""Landing zones: their blobs, and Landfall's records about them."""
