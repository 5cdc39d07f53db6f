"""The clients of storage: addresses, keys and signatures; blobs, queues, tables."""
