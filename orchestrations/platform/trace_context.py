"""W3C trace contexts with derived ids, not random ones. Pure.

A span that is sent again after a crash has the same ids, and an orchestrator's replay gives the
same spans. A context is the text of the header `traceparent`:
https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Self

from orchestrations.contracts.landing import BatchTrace

HEADER = "traceparent"
_FORM = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?",
    re.ASCII,
)
_SAMPLED = 1


@dataclass(frozen=True)
class TraceContext:
    """A span: its ids in lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def parse(cls, header: object) -> Self | None:
        """The context in a header; None if it is missing or invalid by the standard."""
        match = _FORM.fullmatch(header) if isinstance(header, str) else None
        if match is None:
            return None
        version, trace_id, span_id = match["version"], match["trace"], match["span"]
        if version == "ff" or (version == "00" and match["rest"]):
            return None
        if not trace_id.strip("0") or not span_id.strip("0"):
            return None
        return cls(trace_id, span_id, sampled=bool(int(match["flags"], 16) & _SAMPLED))

    @classmethod
    def root(cls, *name: str, sampled: bool = True) -> Self:
        """The first span of a new trace: the same name gives the same trace."""
        digest = _digest("trace", *name)
        return cls(digest[:32], digest[32:48], sampled)

    def child(self, *name: str) -> Self:
        """A span of the same trace: the same name below the same span gives the same span."""
        span_id = _digest("span", self.trace_id, self.span_id, *name)[:16]
        return type(self)(self.trace_id, span_id, self.sampled)

    @property
    def header(self) -> str:
        """The text of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def child_header(parent: str | None, *name: str) -> str | None:
    """The header of a child of the span that a header names; None if it names no span."""
    context = TraceContext.parse(parent)
    return None if context is None else context.child(*name).header


def batch_context(batch: str, trace: BatchTrace | None) -> TraceContext | None:
    """The span of a batch; None if it is not traced.

    A batch without a traced event or request begins its own trace. So does a batch that follows
    another: in a zone that is never quiet, one trace would never end.
    """
    if trace is None:
        return None
    parent = TraceContext.parse(trace.parent)
    if parent is not None:
        return parent.child("batch", batch)
    before = TraceContext.parse(trace.follows)
    return TraceContext.root("batch", batch, sampled=before is None or before.sampled)


def run_header(parent: str | None, run: str) -> str | None:
    """The header of a run's span, below that of its batch; None if it is not traced."""
    return child_header(parent, "run", run)


def _digest(*parts: str) -> str:
    # Parts hold no NUL, so that different lists of parts give different texts.
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
