from __future__ import annotations

from pathlib import Path

from localazure.storage.operations import Api, Operation, Properties
from localazure.storage.outbox import Outbox

PUT = Operation(Api.PUT_BLOB, "/a/c/b", "client")
DELETE = Operation(Api.DELETE_BLOB, "/a/c/b", "")
BEFORE = Properties("0x1", "text/plain", 3, "BlockBlob")


async def test_intents_survive_the_process_until_they_are_replaced(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db")
    put, delete = await outbox.intend([(PUT, None), (DELETE, BEFORE)])
    outbox.close()
    outbox = Outbox(tmp_path / "outbox.db")
    assert {intent.id: intent for intent in outbox.unsettled()} == {put.id: put, delete.id: delete}
    await outbox.settle([(put, None)])
    assert outbox.unsettled() == [delete]
    assert not outbox.filled.is_set()
    outbox.close()


async def test_sequence_numbers_rise_across_restarts(tmp_path: Path) -> None:
    seen: list[str] = []
    for _ in range(3):
        outbox = Outbox(tmp_path / "outbox.db")
        (intent,) = await outbox.intend([(PUT, None)])
        await outbox.settle([(intent, {"data": {"n": 1}})])
        assert outbox.filled.is_set()
        ((sequence, event),) = outbox.oldest(10)
        seen.append(event["data"]["sequencer"])
        await outbox.published([sequence])
        assert outbox.oldest(10) == []
        outbox.close()
    assert seen == sorted(set(seen))


async def test_unpublished_events_are_there_after_a_restart(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db")
    for intent in await outbox.intend([(PUT, None)] * 3):
        await outbox.settle([(intent, {"data": {}})])
    outbox.close()
    outbox = Outbox(tmp_path / "outbox.db")
    assert outbox.filled.is_set()
    assert [sequence for sequence, _ in outbox.oldest(2)] == [1, 2]
    outbox.close()
