"""From events of blobs to a frozen batch and its claim."""
