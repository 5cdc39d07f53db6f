"""Numbers on a command line. argparse refuses other values, and reports the reason."""

from __future__ import annotations

import argparse
import math


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


def epochs(text: str) -> tuple[float, ...]:
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
