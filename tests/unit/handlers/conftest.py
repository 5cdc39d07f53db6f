"""azure.ai.ml is loaded once, up here: its own schemas warn of the next marshmallow."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import azure.ai.ml.entities  # noqa: F401 # pyright: ignore[reportUnusedImport] - see above
