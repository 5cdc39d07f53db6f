"""A Service Bus namespace: queues, topics and subscriptions over AMQP 1.0, kept in SQLite.

Reading order: `config` (which entities), `queues` (what may happen to a message, pure), `store`
(what is durable), `broker` (both together), `nodes`, `management` and `cbs` (what a client can
attach a link to), `server` (the only sockets). `amqp` is the protocol, without I/O.
"""

from __future__ import annotations

from localazure.servicebus.server import serve

__all__ = ["serve"]
