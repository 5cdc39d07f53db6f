"""Tracebacks of failures for the author of an app."""

from __future__ import annotations

import concurrent.futures
import importlib
import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Final

import azure.functions

_SDK: Final = Path(azure.functions.__file__).parent
_HOST: Final = (Path(__file__).parents[1], Path(importlib.__file__ or "").parent)
_SITE: Final = _SDK.parents[1]
_WORKER: Final = (
    *(_SDK, _SDK.parent / "durable_functions", _SITE / "azure_functions_runtime"),
    *(Path(json.__file__).parent, Path(concurrent.futures.__file__).parent),
)
_FROZEN: Final = "<frozen importlib"
_HEADING: Final = "Traceback (most recent call last):\n"


def users_traceback(error: BaseException) -> str:
    """A failure's traceback, with its causes.

    Frames of this host are omitted. Frames of the SDK and of json are omitted if other frames
    remain. The text starts with the frames, without Python's "Traceback" heading.
    """
    formatted = TracebackException.from_exception(error)
    chain = list(_chain(formatted))
    for one in chain:
        one.stack = _drop_frames(one.stack, *_HOST)
    if any(_drop_frames(one.stack, *_WORKER) for one in chain):
        for one in chain:
            one.stack = _drop_frames(one.stack, *_WORKER)
    return "".join(formatted.format()).removeprefix(_HEADING).rstrip()


def _chain(error: TracebackException) -> Iterator[TracebackException]:
    yield error
    for other in (error.__cause__, error.__context__, *(error.exceptions or ())):
        if other is not None:
            yield from _chain(other)


def _drop_frames(stack: list[FrameSummary], *folders: Path) -> StackSummary:
    return traceback.StackSummary.from_list(
        frame
        for frame in stack
        if not frame.filename.startswith(_FROZEN)
        and not any(Path(frame.filename).is_relative_to(folder) for folder in folders)
    )
