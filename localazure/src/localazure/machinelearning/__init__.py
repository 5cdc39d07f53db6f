"""A local Azure ML workspace: ARM REST for the azure-ai-ml SDK, and compute that runs jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from localazure.runtime.environment import Environment


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Serve the workspace; see `localazure.machinelearning.service.serve`."""
    # Imported late: a runner process imports this package too, and needs no server.
    from localazure.machinelearning.service import serve as serve_workspace  # noqa: PLC0415 - see above

    async with serve_workspace(environment):
        yield
