"""Blobs: the client of Blob storage, and what moves between blobs and folders."""
