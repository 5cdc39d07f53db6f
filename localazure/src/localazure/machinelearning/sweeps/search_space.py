"""Search spaces, and the draws of trials from them. Pure.

Each draw depends only on the seed and the trial's number, so that a restart repeats it. All
distributions are sampled through their inverse, so that a Sobol sequence works for them, too.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-sweep
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, cast

from localazure.machinelearning.errors import invalid

# The inverse of the normal distribution is not defined at 0 and 1.
_EPSILON = 1e-12


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter: a distribution and its arguments, as in the REST API."""

    name: str
    distribution: str
    arguments: tuple[Any, ...]

    @property
    def choices(self) -> list[Any]:
        """The values of a `choice`."""
        return list(self.arguments[0])

    def at(self, quantile: float) -> Any:
        """The value at a quantile from 0 up to, but not including, 1."""
        return DISTRIBUTIONS[self.distribution].value(quantile, *self.arguments)


def parse_search_space(document: dict[str, Any]) -> tuple[Parameter, ...]:
    """Parse `searchSpace`: name → `[distribution, [arguments]]`.

    Raises:
        ArmError: 400, a distribution is unknown or its arguments are wrong.
    """
    if not document:
        raise invalid("searchSpace is empty: a sweep needs at least one hyperparameter")
    return tuple(_parse(name, entry) for name, entry in sorted(document.items()))


def grid_size(space: Sequence[Parameter]) -> int:
    """The number of combinations in a grid.

    Raises:
        ArmError: 400, a parameter is not a `choice`.
    """
    for parameter in space:
        if parameter.distribution != "choice":
            raise invalid(
                f"searchSpace.{parameter.name}: grid sampling takes `choice` only, not "
                f"{parameter.distribution!r}"
            )
    return math.prod(len(parameter.choices) for parameter in space)


def draw_grid(space: Sequence[Parameter], number: int) -> dict[str, Any]:
    """The combination of a trial, in the order of the parameters and of their values."""
    combination = next(
        itertools.islice(
            itertools.product(*(parameter.choices for parameter in space)), number, None
        )
    )
    return dict(zip((parameter.name for parameter in space), combination, strict=True))


def draw_random(space: Sequence[Parameter], number: int, seed: str) -> dict[str, Any]:
    """The values of a trial; each parameter is drawn independently."""
    source = random.Random(f"{seed}:{number}")  # noqa: S311 - no secret depends on it
    return {parameter.name: parameter.at(source.random()) for parameter in space}


def draw_sobol(space: Sequence[Parameter], number: int, seed: int) -> dict[str, Any]:
    """The values of a trial: a point of a scrambled Sobol sequence.

    Raises:
        ArmError: 400, SciPy is not installed.
    """
    try:
        from scipy.stats import qmc  # noqa: PLC0415 - SciPy is optional, and slow to import
    except ImportError as error:
        raise invalid(
            "sampling rule 'sobol' needs SciPy here: `pip install localazure[sobol]`, or use rule "
            "'random'"
        ) from error
    # SciPy's stubs and SciPy before 1.15 have different names for the seed.
    sequence = cast("Any", qmc).Sobol(d=len(space), scramble=True, seed=seed)
    if number:
        sequence.fast_forward(number)
    point: list[float] = sequence.random(1)[0].tolist()
    return {
        parameter.name: parameter.at(quantile)
        for parameter, quantile in zip(space, point, strict=True)
    }


@dataclass(frozen=True)
class Distribution:
    """A probability distribution for a hyperparameter."""

    value: Callable[..., Any]
    """Returns the value at a quantile, given the arguments."""
    arguments: tuple[str, ...]
    """The arguments' names in a pipeline's step."""


def _choice(quantile: float, values: Sequence[Any]) -> Any:
    return values[int(quantile * len(values))]


def _randint(quantile: float, upper: int) -> int:
    return int(quantile * upper)


def _uniform(quantile: float, low: float, high: float) -> float:
    return low + quantile * (high - low)


def _normal(quantile: float, mean: float, deviation: float) -> float:
    return NormalDist(mean, deviation).inv_cdf(min(max(quantile, _EPSILON), 1 - _EPSILON))


def _loguniform(quantile: float, low: float, high: float) -> float:
    return math.exp(_uniform(quantile, low, high))


def _lognormal(quantile: float, mean: float, deviation: float) -> float:
    return math.exp(_normal(quantile, mean, deviation))


def _quantised(continuous: Callable[[float, float, float], float]) -> Callable[..., float]:
    def value(quantile: float, first: float, second: float, step: float) -> float:
        return round(continuous(quantile, first, second) / step) * step

    return value


_RANGE = ("min_value", "max_value")
_NORMAL = ("mu", "sigma")

DISTRIBUTIONS = {
    "choice": Distribution(_choice, ("values",)),
    "randint": Distribution(_randint, ("upper",)),
    "uniform": Distribution(_uniform, _RANGE),
    "quniform": Distribution(_quantised(_uniform), (*_RANGE, "q")),
    "loguniform": Distribution(_loguniform, _RANGE),
    "qloguniform": Distribution(_quantised(_loguniform), (*_RANGE, "q")),
    "normal": Distribution(_normal, _NORMAL),
    "qnormal": Distribution(_quantised(_normal), (*_NORMAL, "q")),
    "lognormal": Distribution(_lognormal, _NORMAL),
    "qlognormal": Distribution(_quantised(_lognormal), (*_NORMAL, "q")),
}


def _parse(name: str, entry: Any) -> Parameter:
    match entry:
        case [str(kind), [*arguments]] if kind in DISTRIBUTIONS:
            pass
        case _:
            raise invalid(
                f"searchSpace.{name}: {entry!r} is no distribution; known are "
                f"{', '.join(DISTRIBUTIONS)}"
            )
    arity = len(DISTRIBUTIONS[kind].arguments)
    if len(arguments) != arity:
        raise invalid(f"searchSpace.{name}: {kind} takes {arity} arguments")
    if kind == "choice":
        values = arguments[0]
        if not isinstance(values, list) or not values:
            raise invalid(f"searchSpace.{name}: choice needs values")
        if any(isinstance(value, dict) for value in cast("list[Any]", values)):
            raise invalid(f"searchSpace.{name}: conditional choices are not covered")
        return Parameter(name, kind, tuple(arguments))
    if not all(_is_number(each) for each in arguments):
        raise invalid(f"searchSpace.{name}: the arguments of {kind} must be finite numbers")
    parameter = Parameter(name, kind, tuple(arguments))
    if reason := _reason_against(parameter):
        raise invalid(f"searchSpace.{name}: {kind} {arguments!r}: {reason}")
    return parameter


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max


def _reason_against(parameter: Parameter) -> str | None:
    """The reason why a distribution has no value at some quantile; None if it has all."""
    names = DISTRIBUTIONS[parameter.distribution].arguments
    values = dict(zip(names, parameter.arguments, strict=True))
    rules = {
        "upper must be a number from 1": values.get("upper", 1) >= 1,
        "min_value must not be above max_value": (
            values.get("min_value", 0) <= values.get("max_value", math.inf)
        ),
        "sigma must be above 0": values.get("sigma", 1) > 0,
        "q must be above 0": values.get("q", 1) > 0,
    }
    if broken := next((rule for rule, holds in rules.items() if not holds), None):
        return broken
    # All of them rise with the quantile: what is finite at both ends is finite between them.
    try:
        ends = [parameter.at(0.0), parameter.at(math.nextafter(1.0, 0.0))]
    except (OverflowError, ValueError):
        ends = [math.inf]
    if all(map(math.isfinite, ends)):
        return None
    return "its largest values are no finite numbers" + (
        "; the arguments are exponents of e" if "log" in parameter.distribution else ""
    )
