"""A host process to be killed: `python crash_host.py DATABASE LEDGER`.

Starts instances `chain-0` … unless they exist, runs them to the end and then prints `finished`.
Every activity appends a line to the ledger, so that what was done twice can be counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.durable_functions as df

from localazure.functions.durable.extension import DurableExtension, DurableOptions
from localazure.functions.durable.records import InstanceExists
from tests.local.functions_durable.tiny_app import TinyApp

INSTANCES = 20
STEPS = 6


def make_app(ledger: Path) -> TinyApp:
    app = TinyApp()
    lines = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.activity
    async def step(work: dict[str, Any]) -> int:
        await asyncio.sleep(0.001)
        os.write(lines, f"{work['instance']} {work['step']}\n".encode())
        return work["step"]

    @app.entity
    def tally(context: Any) -> None:
        context.set_state(context.get_state(lambda: 0) + 1)
        context.set_result(context.get_input())

    @app.orchestrator
    def chain(context: df.DurableOrchestrationContext) -> Any:
        results: list[Any] = []
        for number in range(STEPS):
            work = {"instance": context.instance_id, "step": number}
            results.append((yield context.call_activity("step", work)))
        yield context.create_timer(context.current_utc_datetime + timedelta(milliseconds=5))
        yield context.call_entity(df.EntityId("tally", "all"), "count", 1)
        return results

    return app


async def main(database: Path, ledger: Path) -> None:
    app = make_app(ledger)
    extension = DurableExtension(
        database_path=database,
        base_url="http://127.0.0.1",
        system_key="k",
        invoke=app.invoke,
        options=DurableOptions(),
    )
    await extension.start(
        orchestrators=app.orchestrators, activities=app.activities, entities=app.entities
    )
    hub = extension._api._hub  # pyright: ignore[reportPrivateUsage]
    print("started", flush=True)  # noqa: T201 - the test reads it
    for number in range(INSTANCES):
        if hub.store.instance(f"chain-{number}") is None:
            try:
                await hub.start("chain", instance_id=f"chain-{number}")
            except InstanceExists:
                continue
    while len(hub.store.query(statuses=["Completed"])) < INSTANCES:
        await asyncio.sleep(0.005)
    state = json.loads(hub.store.entity_state("@tally@all") or "null")
    outputs = {i.execution.instance_id: json.loads(i.output or "null") for i in hub.store.query()}
    print(json.dumps({"tally": state, "outputs": outputs}), flush=True)  # noqa: T201 - as above
    await extension.stop(5)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
