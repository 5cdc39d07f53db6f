"""Scoring scripts of localazure. In a folder of their own: it becomes the first of `sys.path`."""
