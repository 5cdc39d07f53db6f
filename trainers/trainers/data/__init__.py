"""Training data: datasets and their storage formats, decoding, and the order of the samples."""
