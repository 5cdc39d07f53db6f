from __future__ import annotations

import asyncio

from localazure.functions.durable.runtime.completion_waiters import Endings


async def test_all_who_wait_for_an_instance_are_told_and_nobody_else() -> None:
    endings = Endings()
    waiting = [asyncio.create_task(endings.wait(name)) for name in ("one", "one", "other")]
    await asyncio.sleep(0)
    endings.tell("one")
    await asyncio.gather(*waiting[:2])
    assert not waiting[2].done()
    endings.tell("other")
    await waiting[2]


async def test_who_no_longer_waits_leaves_nothing_behind() -> None:
    endings = Endings()
    gone, staying = (asyncio.create_task(endings.wait("one")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    endings.tell("one")
    await staying
    assert vars(endings) == vars(Endings())


async def test_an_end_of_which_nobody_waits_is_not_kept() -> None:
    endings = Endings()
    endings.tell("one")
    waiting = asyncio.create_task(endings.wait("one"))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
