"""The owner of a sample of the Functions host, by the stack of its event loop's thread."""

from __future__ import annotations

from collections.abc import Iterable

IDLE = "idle"

# The first rule with a mark in the path of a frame decides, for the innermost such frame. A frame
# of the standard library (json, uuid, logging) belongs to its caller.
_OWNERS: tuple[tuple[str, str], ...] = (
    ("/dateutil/", "SDK: timestamps (dateutil)"),
    ("/azure/durable_functions/", "SDK: replay"),
    ("/azure/functions/", "SDK: bindings"),
    ("/benchmarks/apps/", "the app"),
    ("/localazure/functions/durable/api/http_api.py", "HTTP"),
    ("/localazure/functions/durable/", "engine"),
    ("/localazure/functions/", "host: invocation"),
    ("/localazure/sqlite/database.py", "engine"),
    ("/aiohttp/", "HTTP"),
)
_LOOP = "event loop"
_SDK_JSON = "SDK: JSON"
_ENGINE_JSON = "engine (JSON)"

OWNERS = (*dict.fromkeys(owner for _, owner in _OWNERS), _SDK_JSON, _ENGINE_JSON, _LOOP)
"""Everything that `classify` returns, but for IDLE."""


def classify(stack: Iterable[tuple[str, str]]) -> str:
    """The owner of a stack.

    Args:
        stack: file and function of each frame, innermost first.

    Returns:
        One of the names that the table shows; JSON work for the SDK is counted separately.
    """
    is_json = False
    for depth, (file, function) in enumerate(stack):
        if depth == 0 and file.endswith("selectors.py") and function == "select":
            return IDLE
        is_json = is_json or "/json/" in file
        for mark, owner in _OWNERS:
            if mark in file:
                if is_json and owner.startswith("SDK"):
                    return _SDK_JSON
                return _ENGINE_JSON if is_json and owner == "engine" else owner
    return _LOOP
