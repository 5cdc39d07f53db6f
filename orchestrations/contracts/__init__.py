"""Contracts of the durable boundary: ids, URIs and numbers, never lists of blobs.

A module per subject. A request of an activity names its result; `orchestrations.activities` makes
the table of all activities from these classes.
"""
