"""Composite types of AMQP 1.0: described lists whose fields have names and types.

A type is a dataclass. Its fields have the order of the standard, and annotations that give their
encoding (part 1, section 1.4, "Composite Type Representation").
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args, get_type_hints

from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.amqp.errors import DecodeError
from localazure.servicebus.amqp.types import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


@dataclass(frozen=True, slots=True)
class _Wire:
    """The conversions of a field of one declared type."""

    name: str
    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]
    """Decode a value. Raises TypeError for a value of another type."""


def _expect(*kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        # In Python a bool is an int; in AMQP it is a separate type.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError
        return value

    return check


def _symbols_from(value: Any) -> list[Symbol]:
    items = value.items if isinstance(value, Array) else (value,)
    if not all(isinstance(item, Symbol) for item in items):
        raise TypeError
    return list(items)


def _symbols_to(value: list[str]) -> Array:
    return Array(tuple(Symbol(item) for item in value))


def _composite_from(value: Any) -> Any:
    if not isinstance(value, Described):
        raise TypeError
    return from_described(value)


def _composite_to(value: Any) -> Any:
    return value.to_described() if isinstance(value, Composite) else value


STRING = _Wire("string", str, _expect(str))
SYMBOL = _Wire("symbol", Symbol, _expect(str))
SYMBOLS = _Wire("symbol or array of symbols", _symbols_to, _symbols_from)
BINARY = _Wire("binary", bytes, _expect(bytes))
BOOLEAN = _Wire("boolean", bool, _expect(bool))
UBYTE = _Wire("ubyte", UByte, _expect(int))
USHORT = _Wire("ushort", UShort, _expect(int))
UINT = _Wire("uint", UInt, _expect(int))
ULONG = _Wire("ulong", ULong, _expect(int))
TIMESTAMP = _Wire("timestamp", Timestamp, _expect(int))
MAP = _Wire("map", dict, _expect(dict))
ANY = _Wire("any type", lambda value: value, lambda value: value)
COMPOSITE = _Wire("described list", _composite_to, _composite_from)


_BY_CODE: dict[int, type[Composite]] = {}
_BY_NAME: dict[str, type[Composite]] = {}


class Composite:
    """A described list with named fields. A field that is None is absent on the wire."""

    code: ClassVar[int]
    composite_name: ClassVar[str]

    def __init_subclass__(cls, *, code: int, name: str) -> None:
        cls.code, cls.composite_name = code, name
        _BY_CODE[code] = _BY_NAME[name] = cls

    def to_described(self) -> Described:
        """The composite as a described list, for the encoder."""
        values: list[Any] = []
        for name, wire, _ in _layout(type(self)):
            value = getattr(self, name)
            values.append(None if value is None else wire.to_wire(value))
        while values and values[-1] is None:
            values.pop()
        return Described(ULong(self.code), values)

    def encode(self) -> bytes:
        """The composite's encoding."""
        return encode(self.to_described())

    @classmethod
    def from_fields(cls, values: Any) -> Self:
        """Create the composite from a decoded list.

        Raises:
            DecodeError: the value is not a list, has too many fields, lacks a mandatory field, or
                has a field of the wrong type.
        """
        if not isinstance(values, list):
            type_name = type(values).__name__
            raise DecodeError(f"{cls.composite_name} is a list, not {type_name}")
        layout = _layout(cls)
        if len(values) > len(layout):
            raise DecodeError(
                f"{cls.composite_name} has {len(values)} fields; it has at most {len(layout)}"
            )
        parsed: dict[str, Any] = {}
        for position, (name, wire, is_mandatory) in enumerate(layout):
            value = values[position] if position < len(values) else None
            if value is None:
                if is_mandatory:
                    raise DecodeError(f"{cls.composite_name} lacks its field {name}")
                if not hasattr(cls, name):
                    parsed[name] = None
                continue
            try:
                parsed[name] = wire.from_wire(value)
            except TypeError:
                type_name = type(value).__name__
                raise DecodeError(
                    f"{cls.composite_name}: {name} should be {wire.name}, not {type_name}"
                ) from None
        return cls(**parsed)


@functools.cache
def _layout(kind: type[Composite]) -> tuple[tuple[str, _Wire, bool], ...]:
    """Name, wire type and "is mandatory" of every field, in wire order."""
    layout: list[tuple[str, _Wire, bool]] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name in ("code", "composite_name"):
            continue
        declared, wire = get_args(hint)
        may_be_absent = hasattr(kind, name) or type(None) in get_args(declared)
        layout.append((name, wire, not may_be_absent))
    return tuple(layout)


def from_described(value: Described) -> Composite | Described:
    """The composite for a described list; the value itself if its descriptor is unknown.

    Raises:
        DecodeError: the contents do not fit the descriptor.
    """
    kind: type[Composite] | None = None
    if isinstance(value.descriptor, Symbol):
        kind = _BY_NAME.get(value.descriptor)
    elif isinstance(value.descriptor, int):
        kind = _BY_CODE.get(value.descriptor)
    if kind is None:
        return value
    return kind.from_fields(value.value)
