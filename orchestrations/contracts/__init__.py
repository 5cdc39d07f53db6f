"""Contracts of the durable boundary: ids, URIs and numbers, never lists of blobs.

There is a module per subject. An activity's request class names its result; from these classes,
`orchestrations.platform.activities` makes the table of all activities.
"""
