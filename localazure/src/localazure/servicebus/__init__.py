"""A Service Bus namespace: queues, topics and subscriptions over AMQP 1.0, kept in SQLite.

Reading order: `configuration` (the entities), `queues` (the rules of a queue, pure), `store`
(SQLite), `broker` (both together), `nodes`, `management` and `cbs` (the nodes that links attach
to), `server` (the TCP server). `amqp` is the protocol, without I/O.
"""
