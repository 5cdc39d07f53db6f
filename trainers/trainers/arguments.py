"""Options as fields of a dataclass: the annotation names the values, the field the rest.

argparse refuses other values, and reports the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

_NAMES, _ARGUMENT = "names", "argument"
_Options = TypeVar("_Options")


def option(default: Any, text: str | None = None, *names: str, **argument: Any) -> Any:
    """A field that is an option.

    Args:
        default: of the field, and of the option; `...` if it has to be given.
        text: what `--help` says.
        names: on the command line; the field's by default.
        argument: further arguments of `ArgumentParser.add_argument`.
    """
    return dataclasses.field(
        default=dataclasses.MISSING if default is ... else default,
        metadata={_NAMES: names, _ARGUMENT: {"help": text, **argument}},
    )


def parse_options(
    options: type[_Options], program: str, description: str, arguments: Sequence[str] | None = None
) -> _Options:
    """Parse a command line; exits with status 2 and a usage message if it is wrong.

    Args:
        options: a dataclass whose fields are the options, in the order of the usage message.
        program: the module, as `trainers.train`.
        description: of the program.
        arguments: without the program; by default those of the process.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = typing.get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(typing.cast("Any", options)):
        names = field.metadata[_NAMES] or ("--" + field.name.replace("_", "-"),)
        given: dict[str, Any] = {"default": field.default}
        if field.default is dataclasses.MISSING:
            given = {"required": True} if names[0].startswith("-") else {}
        parser.add_argument(
            *names, **_values(kinds[field.name]), **given, **field.metadata[_ARGUMENT]
        )
    return options(**vars(parser.parse_args(arguments)))


def _values(kind: Any) -> dict[str, Any]:
    """The argparse arguments for an annotation; `X | None` is an option for an X."""
    is_optional = typing.get_origin(kind) in {types.UnionType, typing.Union}
    if is_optional:
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction if is_optional else "store_true"}
    if typing.get_origin(kind) is Literal:
        return {"choices": typing.get_args(kind)}
    return {"type": kind.__metadata__[0] if typing.get_origin(kind) is Annotated else kind}


def positive_integer(text: str) -> int:
    """1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def count(text: str) -> int:
    """0 or more."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def positive_number(text: str) -> float:
    """Above 0, and finite."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not positive and finite")
    return number


def rising_epochs(text: str) -> tuple[float, ...]:
    """Numbers above 0 that rise, with commas between them."""
    numbers = tuple(positive_number(part) for part in text.split(","))
    if list(numbers) != sorted(set(numbers)):
        raise argparse.ArgumentTypeError(f"{text} does not rise from number to number")
    return numbers


def fraction(text: str) -> float:
    """From 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return number


PositiveInteger = Annotated[int, positive_integer]
Count = Annotated[int, count]
PositiveNumber = Annotated[float, positive_number]
Fraction = Annotated[float, fraction]
RisingEpochs = Annotated[tuple[float, ...], rising_epochs]


def is_dotted(name: str) -> bool:
    """Whether it names a user's own factory, as `package.module:factory`."""
    return ":" in name


def name_among(names: Sequence[str], *, prefix: str | None = None) -> Callable[[str], str]:
    """One of these names, one that begins with the prefix, or a user's own factory."""

    def name(text: str) -> str:
        is_of_prefix = prefix is not None and text.startswith(prefix)
        if text not in names and not is_dotted(text) and not is_of_prefix:
            known = f"one of {', '.join(names)}, and not " if names else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not {known}package.module:factory")
        return text

    return name
