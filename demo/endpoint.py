"""The live endpoint of the sixth story, as its customers and its operators see it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from demo.cloud import Cloud

PAUSE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A managed online endpoint, read with the SDK."""

    scoring_uri: str
    key: str = field(repr=False)
    traffic: dict[str, int]
    """Percent by deployment."""
    deployments: list[str]


def read_endpoint(cloud: Cloud, name: str) -> Endpoint:
    """The endpoint's current state. It blocks, and is slow at first: it loads azure.ai.ml."""
    client = cloud.workspace
    endpoint: Any = client.online_endpoints.get(name)
    keys: Any = client.online_endpoints.get_keys(name)
    return Endpoint(
        scoring_uri=endpoint.scoring_uri,
        key=keys.primary_key,
        traffic={deployment: int(share) for deployment, share in endpoint.traffic.items() if share},
        deployments=sorted(str(each.name) for each in client.online_deployments.list(name)),
    )


@dataclass
class Customers:
    """Sends images to an endpoint, one after the other, and counts answers by deployment."""

    cloud: Cloud
    endpoint: Endpoint
    images: Sequence[bytes]
    answers: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    """(deployment, status) → requests; if nobody answered, ("", 0)."""

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncGenerator[None]:
        """Send images during the context."""
        task = asyncio.create_task(self._send())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _send(self) -> None:
        tls = ssl.create_default_context(cafile=self.cloud.endpoints["azure_ml"]["ca_bundle"])
        for image in itertools.cycle(self.images):
            deployment, status = "", 0  # no answer: from injected faults
            with contextlib.suppress(aiohttp.ClientError):
                async with self.cloud.http.post(
                    self.endpoint.scoring_uri,
                    json={"image": base64.b64encode(image).decode()},
                    headers={"Authorization": f"Bearer {self.endpoint.key}"},
                    ssl=tls,
                ) as response:
                    deployment = response.headers.get("azureml-model-deployment", "")
                    status = response.status
            self.answers[deployment, status] += 1
            await asyncio.sleep(PAUSE_SECONDS)
