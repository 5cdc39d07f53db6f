"""The Functions host: loads any Azure Functions app (Python v2) and runs its triggers."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from localazure.functions.errors import AppLoadError

if TYPE_CHECKING:
    from localazure.runtime.environment import Environment

__all__ = ["AppLoadError", "serve"]

# Imports late, so that the durable engine below this package can be used without the host.


def serve(environment: Environment) -> AbstractAsyncContextManager[None]:
    """Run the environment's app as a part of localazure (see `app_process.serve`)."""
    from localazure.functions import app_process  # noqa: PLC0415 - see above

    return app_process.serve(environment)
