"""AMQP 1.0 without I/O: bytes in, events out. Knows nothing of Service Bus.

Layers, lowest first: `types`, `constructors`, `encoding` and `decoding` (the type system),
`composite` and `performatives` (described lists with named fields), `frames` (the byte stream),
`message` (the sections of a message), `link`, `session` and `connection` (their state machines).

The standard: OASIS AMQP Version 1.0, https://docs.oasis-open.org/amqp/core/v1.0/
"""
