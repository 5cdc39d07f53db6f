"""What tests came to, with Azurite as released and as localazure runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

TRIES: Final = 3


@dataclass
class Outcome:
    """What tests came to, by file and full title; titles repeat, so passes are counted."""

    passed: Counter[str] = field(default_factory=Counter[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Each with the message of its last failure."""

    def retry(self, there: Outcome, run: Callable[[Sequence[str], int], Outcome]) -> None:
        """Run again what passed as released and failed here: some tests depend on time.

        Args:
            there: the outcome as released.
            run: runs at least these tests, in the try of this number.
        """
        for attempt in range(1, TRIES):
            if self.passed >= there.passed:
                break
            again = run(sorted(there.passed - self.passed), attempt)
            self.passed |= again.passed
            self.failed = {
                test: again.failed.get(test, error)
                for test, error in self.failed.items()
                if test in again.failed or test not in again.passed
            }
