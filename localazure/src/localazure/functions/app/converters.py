"""Converts triggers' data to functions' arguments, and results back, with the SDK's converters.

The Python worker and this host both convert with the registry of `azure.functions`, so a value that
does not convert here does not convert on Azure either. The fallback for bindings that the registry
does not know (annotated `str` or `bytes`) is part of the worker and is reimplemented here.

Source: https://github.com/Azure/azure-functions-python-worker (bindings)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import azure.functions
from azure.functions.meta import Datum

GENERIC = "generic"
_INT_LIMIT = 2**63
"""The protocol's integers have 64 bits."""


class GenericConverter:
    """Converts text and bytes for kinds of bindings that the SDK does not know."""

    @classmethod
    def check_input_type_annotation(cls, pytype: type) -> bool:
        """Whether an input parameter may have this annotation."""
        return issubclass(pytype, str | bytes)

    @classmethod
    def check_output_type_annotation(cls, pytype: type) -> bool:
        """Whether an output may have this annotation."""
        return issubclass(pytype, str | bytes | bytearray)

    @classmethod
    def decode(cls, data: Datum, *, trigger_metadata: Mapping[str, Datum]) -> Any:  # noqa: ARG003 - the SDK's signature
        """Return the text or bytes unchanged."""
        if data.type not in {"string", "bytes", "json", None}:
            raise ValueError(f"a {data.type!r} value cannot be handed to a str or bytes parameter")
        return data.value

    @classmethod
    def encode(cls, obj: Any, *, expected_type: type | None) -> Datum:  # noqa: ARG003 - the SDK's signature
        """Encode text, bytes, a number, a dict or list as JSON, or None."""
        match obj:
            case None:
                return Datum(None, None)
            case str():
                return Datum(obj, "string")
            case bytes() | bytearray():
                return Datum(bytes(obj), "bytes")
            case dict() | list():
                return Datum(json.dumps(obj), "json")
            case int() if -_INT_LIMIT <= obj < _INT_LIMIT:
                return Datum(int(obj), "int")
            case float():
                return Datum(obj, "double")
            case _:
                raise NotImplementedError

    @classmethod
    def has_implicit_output(cls) -> bool:
        """Whether a function may return a value without a $return binding."""
        return True


def converter(kind: str) -> Any:
    """The converter of a kind of binding: a class with the methods of `GenericConverter`."""
    return azure.functions.get_binding_registry().get(kind) or GenericConverter


def has_implicit_output(kind: str) -> bool:
    """Whether a function with this kind of binding may return a value without an output binding."""
    return bool(getattr(converter(kind), "has_implicit_output", lambda: False)())


def decode(kind: str, datum: Datum, metadata: Mapping[str, Datum]) -> Any:
    """The function's argument for a binding.

    Raises:
        TypeError: the binding does not take such a value.
    """
    try:
        return converter(kind).decode(datum, trigger_metadata=metadata)
    except NotImplementedError:
        raise TypeError(f"a {kind} binding does not take a {datum.type!r} value") from None


def encode(kind: str, value: Any, python_type: type | None) -> Datum:
    """Encode a value that a function returned or set, for its binding.

    Raises:
        TypeError: the binding does not take such a value.
    """
    try:
        return converter(kind).encode(value, expected_type=python_type)
    except NotImplementedError:
        raise TypeError(
            f"a {kind} binding does not take a value of type {type(value).__name__}"
        ) from None
