"""The app's I/O: triggers, activities, and the clients that they use.

In all functions `pipelines` are by name, `starter` is the durable client, `records` the records
container, and times are in UTC.
"""
