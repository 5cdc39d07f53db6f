"""A command line as a dataclass: each field is an option, its annotation defines the valid values.

argparse refuses other values and reports the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import types
import typing
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from trainers.recipe import options_of

OWN = "package.module:factory"
"""The form of the dotted path of a user's own factory, for help texts."""
_Options = TypeVar("_Options")


def option(default: Any, text: str | None = None, *, is_positional: bool = False) -> Any:
    """A dataclass field for an option. `text` is for `--help`; `...` marks a required option."""
    return dataclasses.field(
        default=dataclasses.MISSING if default is ... else default,
        metadata={"help": text, "is_positional": is_positional},
    )


def parse_options(
    options: type[_Options], program: str, description: str, arguments: Sequence[str] | None = None
) -> _Options:
    """Parse a command line; exits with status 2 and a usage message if it is wrong.

    `options` is a dataclass whose fields are the options, `program` a module like `trainers.train`.
    The default of `arguments` is the process's own command line. A field `recipe` is of a file of
    options, before which those of the command line have precedence.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = typing.get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(typing.cast("Any", options)):
        argument = {**_values(kinds[field.name]), "help": field.metadata["help"]}
        if field.metadata["is_positional"]:
            parser.add_argument(field.name, **argument)
            continue
        is_needed = field.default is dataclasses.MISSING
        argument |= {"required": True} if is_needed else {"default": field.default}
        parser.add_argument("--" + field.name.replace("_", "-"), **argument)
    given = sys.argv[1:] if arguments is None else list(arguments)
    if "recipe" in kinds:
        finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        finder.add_argument("--recipe", type=Path)
        file = finder.parse_known_args(given)[0].recipe
        try:
            given = [*(options_of(file, kinds.keys() - {"recipe"}) if file else ()), *given]
        except ValueError as error:
            parser.error(str(error))
    return options(**vars(parser.parse_args(given)))


def _values(kind: Any) -> dict[str, Any]:
    """Return the argparse arguments for an annotation. `X | None` is handled as X."""
    is_optional = typing.get_origin(kind) in {types.UnionType, typing.Union}
    if is_optional:
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction if is_optional else "store_true"}
    if typing.get_origin(kind) is Literal:
        return {"choices": typing.get_args(kind)}
    return {"type": kind.__metadata__[0] if typing.get_origin(kind) is Annotated else kind}


def _checked(
    kind: Callable[[str], Any], is_valid: Callable[[Any], bool], wanted: str
) -> Callable[[str], Any]:
    """Return a parser that refuses invalid values of an option. `wanted` is for its message."""

    def value(text: str) -> Any:
        read = kind(text)
        if not is_valid(read):
            raise argparse.ArgumentTypeError(f"{text} is not {wanted}")
        return read

    return value


PositiveInteger = Annotated[int, _checked(int, lambda number: number >= 1, "1 or more")]
Count = Annotated[int, _checked(int, lambda number: number >= 0, "0 or more")]
PositiveNumber = Annotated[
    float, _checked(float, lambda number: 0 < number < math.inf, "positive and finite")
]
Fraction = Annotated[float, _checked(float, lambda number: 0 <= number <= 1, "between 0 and 1")]
RisingEpochs = Annotated[
    tuple[float, ...],
    _checked(
        lambda text: tuple(float(part) for part in text.split(",")),
        lambda numbers: all(low < high for low, high in pairwise([0, *numbers, math.inf])),
        "positive numbers that rise, with commas between them",
    ),
]


def is_dotted(name: str) -> bool:
    """Whether the name is the dotted path of a user's own factory, `package.module:factory`."""
    return ":" in name


def name_among(*names: str, prefixes: tuple[str, ...] = ()) -> Callable[[str], str]:
    """Return a parser for one of these names, a name with a prefix, or a user's own factory."""
    return _checked(
        str,
        lambda name: name in names or is_dotted(name) or name.startswith(prefixes),
        f"one of {', '.join((*names, *prefixes, OWN))}",
    )
