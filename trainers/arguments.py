"""Options as fields of a dataclass, and the numbers that they take.

argparse refuses other values, and reports the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

_NAMES, _ARGUMENT = "names", "argument"


def option(*names: str, default: Any = dataclasses.MISSING, **argument: Any) -> Any:
    """A field that is an option; without a default it has to be given.

    Args:
        names: on the command line; the field's by default.
        default: of the field, and of the option.
        argument: further arguments of `ArgumentParser.add_argument`.
    """
    return dataclasses.field(default=default, metadata={_NAMES: names, _ARGUMENT: argument})


def add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """Add the options that the fields of a dataclass are, in their order."""
    for field in dataclasses.fields(options):
        names = field.metadata[_NAMES] or ("--" + field.name.replace("_", "-"),)
        is_required = field.default is dataclasses.MISSING
        value: dict[str, Any] = {"required": True} if is_required else {"default": field.default}
        parser.add_argument(*names, **value, **field.metadata[_ARGUMENT])


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


def is_dotted(name: str) -> bool:
    """Whether it names a user's own factory, as `package.module:factory`."""
    return ":" in name


def name_among(names: Sequence[str]) -> Callable[[str], str]:
    """One of these names, or a user's own factory."""

    def name(text: str) -> str:
        if text not in names and not is_dotted(text):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one of {', '.join(names)}, and not package.module:factory"
                if names
                else f"{text!r} is not package.module:factory"
            )
        return text

    return name
