"""JSON from the network: nothing that a client sends is a defect of a part."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text; bytes are in UTF-8, UTF-16 or UTF-32, whatever their header says.

    Raises:
        ValueError: it is not JSON, or it is nested too deeply for Python's parser (about 1,000
            levels; the services allow 64 or 100).
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
