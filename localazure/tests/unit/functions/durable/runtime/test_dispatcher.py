from __future__ import annotations

import asyncio

from localazure.functions.durable.runtime.dispatcher import CompletionWaiters


async def test_who_no_longer_waits_leaves_nothing_behind() -> None:
    waiters = CompletionWaiters()
    gone, staying = (asyncio.create_task(waiters.wait("one")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    waiters.notify("one")
    await staying
    waiters.notify("one")  # without waiters
    assert vars(waiters) == vars(CompletionWaiters())
