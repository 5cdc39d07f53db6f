"""A Service Bus broker on a state folder, with a clock that is set by hand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localazure.servicebus import store
from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.amqp.types import Described, ULong
from localazure.servicebus.broker import Broker
from localazure.servicebus.configuration import NamespaceConfiguration
from localazure.servicebus.entities import Entity
from localazure.servicebus.store import SentMessage
from localazure.sqlite.database import Database


def entity(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "properties": properties}


CONFIGURATION = NamespaceConfiguration.model_validate(
    {
        "queues": [
            entity(
                "q",
                lock_duration="PT1S",
                max_delivery_count=2,
                requires_duplicate_detection=True,
                duplicate_detection_history_time_window="PT5S",
            ),
            entity("forwarding", forward_to="q", forward_dead_lettered_messages_to="q"),
            entity("circle", forward_to="back"),
            entity("back", forward_to="circle"),
            entity("doomed", forward_dead_lettered_messages_to="circle"),
            entity(
                "short",
                default_message_time_to_live="PT0.1S",
                forward_dead_lettered_messages_to="t",
            ),
        ],
        "topics": [
            {
                "name": "t",
                "subscriptions": [
                    entity("a"),
                    entity("b", forward_to="q", default_message_time_to_live="PT0.5S"),
                ],
            }
        ],
    }
)


def message(body: str, **changes: Any) -> SentMessage:
    properties = p.Properties(message_id=changes.pop("message_id", None))
    bare = properties.encode() + encode(Described(ULong(0x75), body.encode()))
    return SentMessage(bare=bare, properties=properties, **changes)


class Receiver:
    """A consumer with credit that records its messages."""

    def __init__(self, credit: int, *, receives_and_deletes: bool = False) -> None:
        self.credit = credit
        self.receives_and_deletes = receives_and_deletes
        self.got: list[tuple[uuid.UUID | None, bytes]] = []

    def has_credit(self) -> bool:
        return self.credit > 0

    def reserve(self) -> None:
        self.credit -= 1

    def release(self) -> None:
        self.credit += 1

    def deliver_deleted(self, payload: bytes) -> None:
        self.got.append((None, payload))

    def deliver_locked(self, token: uuid.UUID, payload: bytes) -> None:
        self.credit -= 1
        self.got.append((token, payload))

    @property
    def bodies(self) -> list[bytes]:
        return [amqp_message.body_data(payload)[0] for _, payload in self.got]


class World:
    """A broker on a state folder, with its clock. It can be restarted."""

    def __init__(self, file: Path) -> None:
        self.now_ms = 1_000_000
        self._file = file

    async def start(self) -> None:
        self.database = Database(self._file, store.MIGRATIONS)
        self.broker = await Broker.start(CONFIGURATION, self.database, lambda: self.now_ms)

    async def stop(self) -> None:
        await self.broker.stop()
        self.database.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def entity(self, path: str) -> Entity:
        found = self.broker.namespace.find(path)
        assert found is not None
        return found

    def receive(
        self, path: str, credit: int = 10, kind: SubQueueKind = SubQueueKind.ACTIVE
    ) -> Receiver:
        receiver = Receiver(credit)
        sub_queue = self.entity(path).sub_queues[kind]
        self.broker.attach(sub_queue, receiver)
        self.broker.pump(sub_queue)
        return receiver

    async def pass_time(self, elapsed_ms: int, until: Callable[[], bool]) -> None:
        self.now_ms += elapsed_ms
        self.broker.advance()
        async with asyncio.timeout(10):
            while not until():
                await asyncio.sleep(0)
