"""Two hosts of one app on one task hub, in this process."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import azure.durable_functions as df

from harness.task_hub import KEYS, DurableApp, RunningHub, running, simple_app
from localazure.functions.configuration.several_hosts import INSTANCE_ID
from localazure.runtime.environment import HOSTS, LEASE_SECONDS

# Longer than a test: hosts take over only released leases.
LEASE = "300"


def make_app() -> DurableApp:
    app = simple_app()

    @app.orchestrator
    def chain(context: df.DurableOrchestrationContext) -> Any:
        number = yield context.call_activity("double", 1)
        return (yield context.call_activity("double", number))

    return app


def host(app: DurableApp, folder: Path, name: str) -> AbstractAsyncContextManager[RunningHub]:
    app_settings = {HOSTS: "2", INSTANCE_ID: name, LEASE_SECONDS: LEASE}
    return running(app, folder, app_settings=app_settings)


async def test_a_start_that_waits_is_answered_by_either_host(tmp_path: Path) -> None:
    app = make_app()
    async with host(app, tmp_path, "one") as one, host(app, tmp_path, "two") as two:
        # The first host has all partitions: the second one has not renewed since its start.
        for hub in (one, two):
            async with hub.http.post(
                f"{hub.base_url}/runtime/webhooks/durabletask/orchestrators/chain",
                params={"code": KEYS.system, "timeout": "20", "pollingInterval": "1"},
            ) as reply:
                assert (reply.status, await reply.json()) == (200, 4)
