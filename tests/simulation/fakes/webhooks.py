"""The receiver of webhooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult

from handlers.notify.webhooks import Answer, ReceiverUnreachable
from tests.simulation.network import Network, Unavailable

Take = Callable[[str, str, dict[str, Any]], None]
"""Called with URL, id and document."""


class WebhookReceiver:
    """Takes what `handlers.notify.webhooks.post` would send."""

    def __init__(self, network: Network, take: Take) -> None:
        self._network = network
        self._take = take

    def post(
        self, receiver: SplitResult, *, headers: dict[str, str], body: bytes, **_: Any
    ) -> Answer:
        """In the place of `webhooks.post`."""
        try:
            self._network.call(
                "webhooks",
                "post",
                lambda: self._take(receiver.geturl(), headers["webhook-id"], json.loads(body)),
            )
        except Unavailable as error:
            if error.status is None:
                raise ReceiverUnreachable("no answer") from error
            return Answer(error.status, retry_after_seconds=30.0)
        return Answer(204)
