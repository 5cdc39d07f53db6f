"""AMQP 1.0 without I/O: bytes in, events out. Knows nothing of Service Bus.

Layers, lowest first: `types` and `codec` (the type system), `performatives` (the composite types),
`frames` (the byte stream), `message` (the sections of a message), `connection` (connection,
session and link state machines).

The standard: OASIS AMQP Version 1.0, https://docs.oasis-open.org/amqp/core/v1.0/
"""
