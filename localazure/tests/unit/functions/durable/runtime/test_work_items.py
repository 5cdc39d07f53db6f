"""Which worker gets a work item."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from localazure.functions.durable.runtime import work_items
from localazure.functions.durable.runtime.work_items import (
    ConnectedWorker,
    Key,
    WorkItem,
    WorkItems,
)

Items = WorkItems[ConnectedWorker]

RUN = Key("activity", "run")
NO_LIMITS = {"orchestration": 0, "activity": 0, "entity": 0}


@dataclass(eq=False, kw_only=True)
class Named(WorkItem[ConnectedWorker]):
    """An item whose message is its name."""

    def message(self, worker: ConnectedWorker, token: str) -> tuple[str, str]:
        del worker
        return token, self.key.name


def begin(items: Items, key: Key = RUN) -> asyncio.Task[Any]:
    return asyncio.create_task(items.run(Named(key=key)))


def connect(
    items: Items,
    limits: Mapping[str, int] | None = None,
    filters: Mapping[tuple[str, str], set[str]] | None = None,
) -> ConnectedWorker:
    return items.connect(ConnectedWorker(NO_LIMITS | dict(limits or {}), filters))


def tokens(worker: ConnectedWorker) -> list[str]:
    return list(worker.items)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_limit_is_kept_and_the_least_loaded_worker_is_next() -> None:
    items = Items()
    limited = connect(items, {"activity": 1})
    other = connect(items, {"activity": 2})
    runs = [begin(items) for _ in range(4)]
    await turn()
    assert (len(limited.items), len(other.items)) == (1, 2)
    items.complete(tokens(limited)[0], "x")
    await turn()
    assert len(limited.items) == 1  # the fourth
    for worker in (limited, other):
        for token in tokens(worker):
            items.complete(token, "x")
    assert await asyncio.gather(*runs) == [["x"]] * 4


async def test_a_lost_workers_item_goes_to_another_and_the_first_answer_counts() -> None:
    items = Items()
    lost = connect(items)
    run = begin(items)
    await turn()
    (late,) = tokens(lost)
    items.disconnect(lost)
    other = connect(items)
    (token,) = tokens(other)
    assert token != late
    items.complete(late, "late", is_partial=True)
    items.complete(late, "late")
    items.complete(token, "second")
    assert await run == ["late", "late"]
    assert not other.items
    items.complete(token, "third")  # no effect


async def test_filters_by_kind_name_and_version() -> None:
    items = Items()
    wanted = [Key("orchestration", "new", "2"), Key("entity", "counter", "any")]
    others = [Key("orchestration", "new", "1"), Key("entity", "x"), RUN]
    filtered = connect(
        items, filters={("orchestration", "new"): {"2"}, ("entity", "counter"): set()}
    )
    runs = [begin(items, key) for key in (*wanted, *others)]
    await turn()
    assert [item.key for item in filtered.items.values()] == wanted
    rest = connect(items)
    assert sorted(item.key for item in rest.items.values()) == sorted(others)
    for run in runs:
        run.cancel()
    await turn()
    assert not filtered.items
    assert not rest.items


async def test_a_worker_that_leaves_gets_no_more_and_answers_what_it_has() -> None:
    items = Items()
    leaving = connect(items)
    first = begin(items)
    await turn()
    leaving.is_leaving = True
    second = begin(items)
    await turn()
    (token,) = tokens(leaving)
    items.complete(token, "x")
    assert await first == ["x"]
    other = connect(items)
    items.complete(tokens(other)[0], "y")
    assert await second == ["y"]


async def test_an_abandoned_item_goes_to_another_or_after_a_pause_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_items, "ABANDONED_SECONDS", 0)
    items = Items()
    first = connect(items)
    run = begin(items)
    await turn()
    items.abandon(tokens(first)[0])
    assert not first.items
    await turn()
    assert first.items  # nobody else is there
    other = connect(items)
    items.abandon(tokens(first)[0])
    await turn()
    assert not first.items
    items.complete(tokens(other)[0], "x")
    assert await run == ["x"]
