"""Values that are compared by the SHA-256 of their canonical JSON, without the full value.

Canonical here means: keys sorted, no white space, UTF-8, and a float without a fraction written as
an integer (1.0 is 1, as in RFC 8785), since a service may rewrite either form into the other.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, cast

_EXACT_FLOAT_LIMIT: Final = 2**53
_SHOWN_CHARACTERS: Final = 200


def canonical_json(value: Any) -> str:
    """The canonical text of a JSON value."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """SHA-256 of a JSON value's canonical text, in hexadecimal."""
    # A lone surrogate, which JSON allows as an escape, has no UTF-8 of its own.
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def parse(text: str | None) -> Any:
    """The value of a JSON text; a text that is not JSON (a failure's message) is its own value."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Payload:
    """A recorded value: in full, as a hash, or not recorded at all.

    Attributes:
        sha256: the value's digest; None if the history does not record the value.
        shown: the value for a report, shortened; None if only the hash is known.
    """

    sha256: str | None = None
    shown: str | None = None

    @classmethod
    def of(cls, value: Any) -> Payload:
        """A value that is known in full."""
        return cls(digest(value), show(value))

    @property
    def is_recorded(self) -> bool:
        """Whether the value can be compared."""
        return self.sha256 is not None

    def fits(self, value: Any) -> bool:
        """Whether a value equals the recorded one, or no value is recorded."""
        return self.sha256 is None or self.sha256 == digest(value)

    def __str__(self) -> str:
        if self.sha256 is None:
            return "not recorded"
        return self.shown if self.shown is not None else f"sha256 {self.sha256}"


NOT_RECORDED: Final = Payload()


def show(value: Any) -> str:
    """A value as JSON text for a report, shortened."""
    text = canonical_json(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters, sha256 {digest(value)})"


def _canonical(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) < _EXACT_FLOAT_LIMIT:
            return int(value)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: _canonical(item) for key, item in items}
        case list():
            return [_canonical(item) for item in cast("list[Any]", value)]
        case _:
            return value
