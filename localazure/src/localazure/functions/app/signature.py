"""Checks a function's signature against its bindings by the rules of the Python worker.

Source: https://github.com/Azure/azure-functions-python-worker (functions.Registry). The worker
refuses the same functions for the same reasons.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import GenericAlias, UnionType
from typing import Any

from localazure.functions.app import binding_kinds, sdk_types
from localazure.functions.app.converters import GENERIC, converter, has_implicit_output
from localazure.functions.http import web_extension

RETURN = "$return"


class SignatureError(Exception):
    """A function does not match its bindings; the text says why, without the function's name."""


@dataclass(frozen=True)
class Binding:
    """A binding of a function, with the fields of function.json."""

    name: str
    """The parameter of the binding, or `$return`."""
    kind: str
    """The binding's `type`, such as `httpTrigger`."""
    is_output: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Every field of the JSON form, with app settings resolved."""
    is_reference: bool = False
    """Whether the argument is a reference instead of the content."""

    @property
    def connection(self) -> str:
        """The name of the binding's connection; empty if it has none."""
        return str(self.settings.get("connection") or "")

    @property
    def is_batched(self) -> bool:
        """Whether a function takes a batch of messages or events (cardinality many)."""
        return str(self.settings.get("cardinality", "")).lower() == "many"


@dataclass(frozen=True)
class Parameter:
    """The conversion of a bound parameter or of the return value."""

    converter: str
    """Kind of the converter: the binding's kind, or `generic` for str and bytes annotations."""
    python_type: type | None
    is_sdk_type: bool = False
    """Whether an extension makes the parameter's value (see `sdk_types`)."""


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a function, by parameter name."""

    inputs: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    outputs: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    result: Parameter | None = None
    """None if the function must return None."""
    takes_context: bool = False
    settlement_client: str | None = None
    """The parameter for the client that settles Service Bus messages."""


def check(function: Callable[..., Any], bound_to: list[Binding]) -> Signature:
    """Match a function's parameters and annotations with its bindings.

    Raises:
        SignatureError: the real worker would refuse to load the function.
    """
    try:
        annotations = typing.get_type_hints(function)
    except Exception as error:  # the author's annotations may raise any error
        raise SignatureError(
            f"its annotations cannot be resolved: {type(error).__name__}: {error}"
        ) from error
    bound = {binding.name: binding for binding in bound_to if binding.name != RETURN}
    parameters = set(inspect.signature(function).parameters)
    takes_context = "context" in parameters and "context" not in bound
    if takes_context:
        parameters.discard("context")
        _check_context(annotations)
    unbound = sorted(parameters - bound.keys())
    settlement_client = None
    if len(unbound) == 1 and sdk_types.is_settlement_client(annotations.get(unbound[0])):
        settlement_client = unbound.pop()
        parameters.discard(settlement_client)
    if unbound:
        raise SignatureError(
            f"the parameters {', '.join(unbound)} are declared in Python but bound to nothing; "
            "add a binding with that name, or remove them"
        )
    if missing := sorted(bound.keys() - parameters):
        raise SignatureError(
            f"the bindings {', '.join(missing)} have no parameter of that name in Python; "
            "add the parameter, or correct arg_name"
        )
    inputs: dict[str, Parameter] = {}
    outputs: dict[str, Parameter] = {}
    for name, binding in bound.items():
        side = outputs if binding.is_output else inputs
        side[name] = _check_parameter(binding, name in annotations, annotations.get(name))
    result = _check_result(bound_to, annotations)
    return Signature(inputs, outputs, result, takes_context, settlement_client)


def _check_context(annotations: dict[str, Any]) -> None:
    if "context" not in annotations:
        return
    annotation = annotations["context"]
    if not isinstance(annotation, type) or annotation.__name__ != "Context":
        raise SignatureError(
            f"the parameter context must be of type azure.functions.Context, not {annotation!r}"
        )


def _check_parameter(binding: Binding, is_annotated: bool, annotation: Any) -> Parameter:  # noqa: FBT001 - an annotation may be anything
    if not is_annotated:
        return Parameter(binding.kind, None)
    is_out = _is_out(annotation)
    if is_out:
        arguments = typing.get_args(annotation)
        if len(arguments) != 1:
            raise SignatureError(f"{binding.name} has an invalid Out annotation: {annotation!r}")
        python_type = arguments[0]
    else:
        python_type = annotation
    if not isinstance(python_type, type) and not _is_generic(python_type):
        raise SignatureError(
            f"{binding.name} has a non-type annotation, {annotation!r}; the worker takes plain "
            "types and generics of them, neither Optional nor a union"
        )
    if binding.is_output and not is_out:
        raise SignatureError(
            f"{binding.name} is an output, but it is not annotated azure.functions.Out[...]"
        )
    if is_out and not binding.is_output:
        raise SignatureError(f"{binding.name} is an input, but it is annotated {annotation!r}")
    if not is_out and sdk_types.is_sdk_type(python_type):
        return _check_client(binding, python_type)
    kind = binding.kind
    if python_type in (str, bytes) and not has_implicit_output(kind):
        kind = GENERIC
    if not _accepts(kind, python_type, is_output=is_out):
        raise SignatureError(
            f"{binding.name} is a {binding.kind} binding, which does not take "
            f"the annotation {_name(python_type)}"
        )
    return Parameter(kind, python_type)


def _check_client(binding: Binding, python_type: Any) -> Parameter:
    if not sdk_types.accepts(binding.kind, python_type):
        raise SignatureError(
            f"{binding.name} is a {binding.kind} binding, of which there is no {_name(python_type)}"
        )
    return Parameter(binding.kind, python_type, is_sdk_type=True)


def _check_result(bound_to: list[Binding], annotations: dict[str, Any]) -> Parameter | None:
    explicit = [binding.kind for binding in bound_to if binding.name == RETURN]
    implicit = [binding.kind for binding in bound_to if has_implicit_output(binding.kind)]
    annotation = annotations.get("return")
    if explicit:
        kind = explicit[0]
        if "return" not in annotations:
            return Parameter(kind, None)
        if not isinstance(annotation, type):
            raise SignatureError(
                f"the return annotation {annotation!r} is not a plain type; "
                "the worker takes no generics and no unions there"
            )
        if not _accepts(kind, annotation, is_output=True):
            raise SignatureError(
                f"the return annotation {_name(annotation)} does not match the output "
                f"binding {kind}"
            )
        return Parameter(kind, annotation)
    if implicit:
        return Parameter(implicit[-1], annotation)
    return None


def _accepts(kind: str, python_type: Any, *, is_output: bool) -> bool:
    if kind == (binding_kinds.HTTP if is_output else binding_kinds.HTTP_TRIGGER):
        is_native = web_extension.takes(python_type, is_output=is_output)
        if is_native is not None:
            return is_native
    checker = converter(kind)
    check_annotation = (
        checker.check_output_type_annotation if is_output else checker.check_input_type_annotation
    )
    try:
        return bool(check_annotation(python_type))
    except TypeError:  # issubclass() of a generic; the worker refuses it, too
        return False


def _is_out(annotation: Any) -> bool:
    origin = typing.get_origin(annotation) or annotation
    return isinstance(origin, type) and origin.__name__ == "Out"


def _is_generic(annotation: Any) -> bool:
    # The worker considers typing.List[str] generic, but not list[str] and X | None.
    origin = typing.get_origin(annotation)
    return isinstance(origin, type) and not isinstance(annotation, GenericAlias | UnionType)


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", repr(annotation))
