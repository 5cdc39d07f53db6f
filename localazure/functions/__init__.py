"""The Functions host: loads any Azure Functions app (Python v2) and runs its triggers."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localazure.environment import Environment


def serve(environment: Environment) -> AbstractAsyncContextManager[None]:
    """Run the environment's app as a part of localazure."""
    # Late, so that the durable engine below this package can be used without the host.
    from localazure.functions.host import serve as serve_app  # noqa: PLC0415

    return serve_app(environment)
