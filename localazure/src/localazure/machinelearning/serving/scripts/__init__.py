"""Scoring scripts of localazure, in a separate folder, because it is put on `sys.path`."""
