"""The size limit of a custom status, measured as in the real extension."""

from __future__ import annotations

import json

from localazure import limits


def oversize_error(status_json: str | None) -> str | None:
    """Return the real extension's error for a custom status that is too large; None if it is not.

    The real extension counts whole kilobytes, so it accepts up to 1,023 bytes more; this
    function enforces the documented limit.

    Args:
        status_json: JSON text. The size is that of its compact form without escapes.
    """
    limit_bytes = limits.DURABLE_CUSTOM_STATUS.value
    if status_json is None or 2 * len(status_json) <= limit_bytes:
        return None
    compact = json.dumps(json.loads(status_json), ensure_ascii=False, separators=(",", ":"))
    size_bytes = len(compact.encode("utf-16-le", "surrogatepass"))
    if size_bytes <= limit_bytes:
        return None
    return (
        f"The UTF-16 size of the JSON-serialized payload must not exceed {limit_bytes // 1024:,} "
        f"KB. The current payload size is {size_bytes / 1024:,.1f} KB. (set_custom_status; keep "
        "large values in a blob and its address in the status)"
    )
