"""The Functions host: loads any Azure Functions app (Python v2) and runs its triggers."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from localazure.functions.errors import AppLoadError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from localazure.functions.http.cors import CorsPolicy
    from localazure.runtime.environment import Environment

__all__ = ["AppLoadError", "serve", "start_host"]

# Both import late, so that the durable engine below this package can be used without the host.


def serve(environment: Environment) -> AbstractAsyncContextManager[None]:
    """Run the environment's app as a part of localazure (see `host.serve`)."""
    from localazure.functions import host  # noqa: PLC0415 - see above

    return host.serve(environment)


async def start_host(
    app: Path,
    *,
    port: int | None,
    state: Path,
    enable_auth: bool = False,
    only: Sequence[str] = (),
    cors: CorsPolicy | None = None,
) -> None:
    """Run an app alone until SIGTERM or SIGINT (see `host.start_host`)."""
    from localazure.functions import host  # noqa: PLC0415 - see above

    await host.start_host(
        app, port=port, state=state, enable_auth=enable_auth, only=only, cors=cors
    )
