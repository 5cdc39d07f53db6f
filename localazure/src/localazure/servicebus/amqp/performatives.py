"""The composite types of AMQP 1.0: frame bodies, sources and targets, outcomes, errors, SASL.

The fields are those of the standard: part 2 section 2.7, part 3 sections 3.4 and 3.5, part 5
section 5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from localazure.servicebus.amqp.composite import (
    ANY,
    BINARY,
    BOOLEAN,
    COMPOSITE,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
)
from localazure.servicebus.amqp.composite import (
    from_described as from_described,  # noqa: PLC0414 - importing it from here loads all types
)

MAX_UINT = 2**32 - 1
MAX_USHORT = 2**16 - 1

# Roles of a link endpoint (part 2 section 2.8.1).
SENDER = False
RECEIVER = True

# --- part 2, transport --------------------------------------------------------------------------


@dataclass
class Error(Composite, code=0x1D, name="amqp:error:list"):
    """Why a connection, session, link or delivery failed."""

    condition: Annotated[str, SYMBOL]
    description: Annotated[str | None, STRING] = None
    info: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass
class Open(Composite, code=0x10, name="amqp:open:list"):
    """Negotiates the parameters of a connection."""

    container_id: Annotated[str, STRING]
    hostname: Annotated[str | None, STRING] = None
    max_frame_size: Annotated[int, UINT] = MAX_UINT
    channel_max: Annotated[int, USHORT] = MAX_USHORT
    idle_timeout_ms: Annotated[int | None, UINT] = None
    outgoing_locales: Annotated[list[str] | None, SYMBOLS] = None
    incoming_locales: Annotated[list[str] | None, SYMBOLS] = None
    offered_capabilities: Annotated[list[str] | None, SYMBOLS] = None
    desired_capabilities: Annotated[list[str] | None, SYMBOLS] = None
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass
class Begin(Composite, code=0x11, name="amqp:begin:list"):
    """Begins a session on a channel."""

    remote_channel: Annotated[int | None, USHORT]
    next_outgoing_id: Annotated[int, UINT]
    incoming_window: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle_max: Annotated[int, UINT] = MAX_UINT
    offered_capabilities: Annotated[list[str] | None, SYMBOLS] = None
    desired_capabilities: Annotated[list[str] | None, SYMBOLS] = None
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass
class Attach(Composite, code=0x12, name="amqp:attach:list"):
    """Attaches a link to a session."""

    name: Annotated[str, STRING]
    handle: Annotated[int, UINT]
    role: Annotated[bool, BOOLEAN]
    snd_settle_mode: Annotated[int, UBYTE] = 2
    rcv_settle_mode: Annotated[int, UBYTE] = 0
    source: Annotated[Any, COMPOSITE] = None
    target: Annotated[Any, COMPOSITE] = None
    unsettled: Annotated[dict[Any, Any] | None, MAP] = None
    incomplete_unsettled: Annotated[bool | None, BOOLEAN] = None
    initial_delivery_count: Annotated[int | None, UINT] = None
    max_message_size: Annotated[int | None, ULONG] = None
    offered_capabilities: Annotated[list[str] | None, SYMBOLS] = None
    desired_capabilities: Annotated[list[str] | None, SYMBOLS] = None
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass
class Flow(Composite, code=0x13, name="amqp:flow:list"):
    """Updates the windows of a session and the credit of a link."""

    next_incoming_id: Annotated[int | None, UINT]
    incoming_window: Annotated[int, UINT]
    next_outgoing_id: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle: Annotated[int | None, UINT] = None
    delivery_count: Annotated[int | None, UINT] = None
    link_credit: Annotated[int | None, UINT] = None
    available: Annotated[int | None, UINT] = None
    drain: Annotated[bool | None, BOOLEAN] = None
    echo: Annotated[bool | None, BOOLEAN] = None
    properties: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass
class Transfer(Composite, code=0x14, name="amqp:transfer:list"):
    """Carries a message, or a part of one."""

    handle: Annotated[int, UINT]
    delivery_id: Annotated[int | None, UINT] = None
    delivery_tag: Annotated[bytes | None, BINARY] = None
    message_format: Annotated[int | None, UINT] = None
    settled: Annotated[bool | None, BOOLEAN] = None
    more: Annotated[bool | None, BOOLEAN] = None
    rcv_settle_mode: Annotated[int | None, UBYTE] = None
    state: Annotated[Any, COMPOSITE] = None
    resume: Annotated[bool | None, BOOLEAN] = None
    aborted: Annotated[bool | None, BOOLEAN] = None
    batchable: Annotated[bool | None, BOOLEAN] = None


@dataclass
class Disposition(Composite, code=0x15, name="amqp:disposition:list"):
    """Reports the state of one or more deliveries."""

    role: Annotated[bool, BOOLEAN]
    first: Annotated[int, UINT]
    last: Annotated[int | None, UINT] = None
    settled: Annotated[bool | None, BOOLEAN] = None
    state: Annotated[Any, COMPOSITE] = None
    batchable: Annotated[bool | None, BOOLEAN] = None


@dataclass
class Detach(Composite, code=0x16, name="amqp:detach:list"):
    """Detaches a link from its session."""

    handle: Annotated[int, UINT]
    closed: Annotated[bool | None, BOOLEAN] = None
    error: Annotated[Any, COMPOSITE] = None


@dataclass
class End(Composite, code=0x17, name="amqp:end:list"):
    """Ends a session."""

    error: Annotated[Any, COMPOSITE] = None


@dataclass
class Close(Composite, code=0x18, name="amqp:close:list"):
    """Ends a connection."""

    error: Annotated[Any, COMPOSITE] = None


# --- part 3, messaging --------------------------------------------------------------------------


@dataclass
class Accepted(Composite, code=0x24, name="amqp:accepted:list"):
    """The message was processed."""


@dataclass
class Rejected(Composite, code=0x25, name="amqp:rejected:list"):
    """The message is invalid and cannot be processed."""

    error: Annotated[Any, COMPOSITE] = None


@dataclass
class Released(Composite, code=0x26, name="amqp:released:list"):
    """The message was not processed and may be delivered again."""


@dataclass
class Modified(Composite, code=0x27, name="amqp:modified:list"):
    """The message was modified but not processed."""

    delivery_failed: Annotated[bool | None, BOOLEAN] = None
    undeliverable_here: Annotated[bool | None, BOOLEAN] = None
    message_annotations: Annotated[dict[Any, Any] | None, MAP] = None


@dataclass
class Source(Composite, code=0x28, name="amqp:source:list"):
    """The source of a link's messages."""

    address: Annotated[Any, ANY] = None
    durable: Annotated[int | None, UINT] = None
    expiry_policy: Annotated[str | None, SYMBOL] = None
    timeout: Annotated[int | None, UINT] = None
    dynamic: Annotated[bool | None, BOOLEAN] = None
    dynamic_node_properties: Annotated[dict[Any, Any] | None, MAP] = None
    distribution_mode: Annotated[str | None, SYMBOL] = None
    filter: Annotated[dict[Any, Any] | None, MAP] = None
    default_outcome: Annotated[Any, COMPOSITE] = None
    outcomes: Annotated[list[str] | None, SYMBOLS] = None
    capabilities: Annotated[list[str] | None, SYMBOLS] = None


@dataclass
class Target(Composite, code=0x29, name="amqp:target:list"):
    """The target of a link's messages."""

    address: Annotated[Any, ANY] = None
    durable: Annotated[int | None, UINT] = None
    expiry_policy: Annotated[str | None, SYMBOL] = None
    timeout: Annotated[int | None, UINT] = None
    dynamic: Annotated[bool | None, BOOLEAN] = None
    dynamic_node_properties: Annotated[dict[Any, Any] | None, MAP] = None
    capabilities: Annotated[list[str] | None, SYMBOLS] = None


@dataclass
class Header(Composite, code=0x70, name="amqp:header:list"):
    """Delivery details of a message."""

    durable: Annotated[bool | None, BOOLEAN] = None
    priority: Annotated[int | None, UBYTE] = None
    ttl_ms: Annotated[int | None, UINT] = None
    first_acquirer: Annotated[bool | None, BOOLEAN] = None
    delivery_count: Annotated[int | None, UINT] = None


@dataclass
class Properties(Composite, code=0x73, name="amqp:properties:list"):
    """Immutable properties of a message."""

    message_id: Annotated[Any, ANY] = None
    user_id: Annotated[bytes | None, BINARY] = None
    to: Annotated[Any, ANY] = None
    subject: Annotated[str | None, STRING] = None
    reply_to: Annotated[Any, ANY] = None
    correlation_id: Annotated[Any, ANY] = None
    content_type: Annotated[str | None, SYMBOL] = None
    content_encoding: Annotated[str | None, SYMBOL] = None
    absolute_expiry_time: Annotated[int | None, TIMESTAMP] = None
    creation_time: Annotated[int | None, TIMESTAMP] = None
    group_id: Annotated[str | None, STRING] = None
    group_sequence: Annotated[int | None, UINT] = None
    reply_to_group_id: Annotated[str | None, STRING] = None


# --- part 5, security ---------------------------------------------------------------------------


@dataclass
class SaslMechanisms(Composite, code=0x40, name="amqp:sasl-mechanisms:list"):
    """The mechanisms that the server offers."""

    mechanisms: Annotated[list[str], SYMBOLS]


@dataclass
class SaslInit(Composite, code=0x41, name="amqp:sasl-init:list"):
    """The mechanism that the client chose."""

    mechanism: Annotated[str, SYMBOL]
    initial_response: Annotated[bytes | None, BINARY] = None
    hostname: Annotated[str | None, STRING] = None


@dataclass
class SaslOutcome(Composite, code=0x44, name="amqp:sasl-outcome:list"):
    """0 for success, 1 for failed authentication."""

    outcome: Annotated[int, UBYTE]
    additional_data: Annotated[bytes | None, BINARY] = None
