"""The app's I/O: triggers, activities, and the clients that they use.

In all functions, `pipelines` maps names to pipelines, `starter` is the durable client, `records` is
the records container, and times are in UTC.
"""
