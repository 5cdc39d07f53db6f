"""How likely a lead is if the challenger is no better: exact McNemar test, paired t-test. Pure.

Both are one-sided. Decision 0035 has the reasons.
"""

from __future__ import annotations

import math

# Above it, the t distribution is taken from the normal one: the error of p is below 1e-8.
MANY_DEGREES = 10_000
_NEGLIGIBLE = 1e-18


def mcnemar(better: int, worse: int) -> float:
    """P(X >= better), X binomial with better + worse trials of 1/2.

    McNemar, Psychometrika 12 (1947), in its exact form: samples on which the models agree say
    nothing about which is better. Relative error below 1e-9.
    """
    trials = better + worse
    if better <= worse:
        return 1.0 - _upper_tail(trials, worse + 1)
    return _upper_tail(trials, better)


def _upper_tail(trials: int, least: int) -> float:
    """P(X >= least) for least > trials / 2. Weights are relative to the first one above half."""
    if least > trials:
        return 0.0
    first = trials // 2 + 1
    weight, half, tail, number = 1.0, 0.0, 0.0, first
    while number <= trials and weight > 0.0:
        half += weight
        tail += weight if number >= least else 0.0
        if number >= least and weight < _NEGLIGIBLE * tail:
            break
        weight *= (trials - number) / (number + 1)
        number += 1
    middle = 0.0 if trials % 2 else first / (trials // 2)  # as many are above as below it
    return tail / (2.0 * half + middle)


def paired_t(samples: int, difference: float, squares: float) -> float:
    """P(T >= t) for the mean of paired differences.

    Student, Biometrika 6 (1908). If all differences are equal, t is infinite: then it is the
    chance that all have this sign.

    Args:
        samples: how many differences.
        difference: their sum.
        squares: the sum of their squares.
    """
    if samples <= 1:
        return 1.0
    if difference == 0:
        return 0.5
    error = standard_error(samples, difference, squares)
    mean = difference / samples
    if error <= abs(mean) * 1e-9:
        return 0.5**samples if mean > 0 else 1.0
    p = _t_tail(abs(mean) / error, samples - 1)
    return p if mean > 0 else 1.0 - p


def standard_error(samples: int, difference: float, squares: float) -> float:
    """The standard error of the mean difference; 0 for fewer than 2 samples."""
    if samples <= 1:
        return 0.0
    spread = max(squares - difference * (difference / samples), 0.0)
    return math.sqrt(spread / (samples - 1) / samples)


def _t_tail(t: float, degrees: int) -> float:
    """P(T >= t), t >= 0: Abramowitz and Stegun 26.7.3, 26.7.4; 26.7.8 for many degrees."""
    if degrees > MANY_DEGREES:
        z = t * (1 - 1 / (4 * degrees)) / math.sqrt(1 + t * t / (2 * degrees))
        return math.erfc(z / math.sqrt(2)) / 2
    root = math.sqrt(degrees)
    cosine, sine = root / math.hypot(root, t), t / math.hypot(root, t)
    odd = degrees % 2
    term = total = cosine if odd else 1.0
    if degrees == 1:
        total = 0.0
    for number in range(1, (degrees - odd) // 2):
        below = 2 * number + odd
        term *= (below - 1) / below * cosine * cosine
        total += term
    inner = sine * total
    if odd:
        inner = (math.atan2(t, root) + inner) * 2 / math.pi
    return max((1.0 - inner) / 2, 0.0)
