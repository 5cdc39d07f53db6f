"""The scoring proxy: authenticates, splits, mirrors and counts an endpoint's requests.

Statuses are those of managed online endpoints: if the model returns another status than 200, the
client receives 424, with the model's status in a header.
https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints#http-status-codes
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

import aiohttp
from multidict import CIMultiDict

from localazure.machinelearning.fields import read_seconds
from localazure.machinelearning.serving.data_collector import DataCollector
from localazure.machinelearning.serving.deployments import Deployments
from localazure.machinelearning.serving.request_counts import MinuteCounts, minute_of
from localazure.machinelearning.serving.store import (
    Deployment,
    Endpoint,
    add_counts,
    get_deployment,
    get_endpoint,
    list_deployments,
)
from localazure.machinelearning.serving.traffic import choose, choose_mirror, parse_traffic
from localazure.processes.background import cancel
from localazure.runtime.identity import InvalidTokenError, TokenIssuer, is_one_of
from localazure.sqlite.database import Database

DEPLOYMENT_HEADER = "azureml-model-deployment"
MODEL_STATUS_HEADER = "ms-azureml-model-error-statuscode"
MODEL_REASON_HEADER = "ms-azureml-model-error-reason"
SCORE_PATH = "/score"
# https://learn.microsoft.com/azure/machine-learning/reference-yaml-deployment-managed-online#requestsettings
DEFAULT_TIMEOUT = "PT5S"
DEFAULT_CONCURRENCY = 1
FLUSH_SECONDS = 0.5
MIRRORS_AT_ONCE = 64
OK = 200
MODEL_ERROR = 424

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """The response to a scoring request."""

    status: int
    body: bytes
    headers: CIMultiDict[str]


class Scoring:
    """Handles the scoring requests of all endpoints. An async context manager.

    The clock gives epoch seconds. `sleep` pauses between writes of the counts.
    """

    def __init__(
        self,
        database: Database,
        deployments: Deployments,
        collector: DataCollector,
        session: aiohttp.ClientSession,
        tokens: TokenIssuer,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._deployments = deployments
        self._collector = collector
        self._session = session
        self._tokens = tokens
        self._clock = clock
        self._sleep = sleep
        self._draw = random.random
        self._counts: dict[tuple[str, str, int], MinuteCounts] = {}
        self._flush_lock = asyncio.Lock()
        self._mirrors: set[asyncio.Task[Answer]] = set()
        self._flushing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._flushing = asyncio.create_task(self._flush_often())
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel(self._flushing, *self._mirrors)
        await self.flush()

    async def answer(
        self, endpoint_name: str, path: str, authorization: str, selection: str | None, body: bytes
    ) -> Answer:
        """Respond to a request to a path below an endpoint, such as `/score`.

        `authorization` is the value of the header. `selection` is the deployment that the caller
        selects; it overrides the traffic rules.
        """
        endpoint = get_endpoint(self._database.read, endpoint_name)
        if endpoint is None:
            return _text(404, f"there is no endpoint {endpoint_name!r}")
        if not self._is_allowed(endpoint, authorization):
            return _text(401, "key_auth_bad_header: the key or token is missing or not valid")
        query = self._database.read
        if selection is not None:
            deployment = get_deployment(query, endpoint.name, selection)
        else:
            names = [each.name.lower() for each in list_deployments(query, endpoint.name)]
            traffic, mirror = parse_traffic(endpoint.properties, deployments=names)
            chosen = choose(traffic, self._draw())
            deployment = chosen and get_deployment(query, endpoint.name, chosen)
            self._mirror(endpoint, choose_mirror(mirror, self._draw()), path, body)
        if not deployment:
            return _text(404, "the endpoint has no such deployment, or none that gets traffic")
        return await self._score(deployment, path, body)

    async def flush(self) -> None:
        """Write the requests that were counted until now, after a flush that is in progress.

        Raises:
            sqlite3.Error: they could not be written, and are kept for the next call.
        """
        async with self._flush_lock:
            counts, self._counts = self._counts, {}
            if not counts:
                return
            now = self._clock()
            try:
                await self._database.write(
                    lambda connection: add_counts(connection, counts.items(), now=now)
                )
            except Exception:
                for key, part in counts.items():
                    self._counts.setdefault(key, MinuteCounts()).merge(part)
                raise

    def _is_allowed(self, endpoint: Endpoint, authorization: str) -> bool:
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return False
        if endpoint.properties.get("authMode") == "Key":
            return is_one_of(credential, (endpoint.primary_key, endpoint.secondary_key))
        try:
            self._tokens.check(credential, now=self._clock())
        except InvalidTokenError:
            return False
        return True

    def _mirror(self, endpoint: Endpoint, name: str | None, path: str, body: bytes) -> None:
        """Send a copy of a request, and drop the response."""
        if name is None or len(self._mirrors) >= MIRRORS_AT_ONCE:
            return
        deployment = get_deployment(self._database.read, endpoint.name, name)
        if deployment is not None:
            task = asyncio.create_task(self._score(deployment, path, body))
            self._mirrors.add(task)
            task.add_done_callback(self._mirrors.discard)

    async def _score(self, deployment: Deployment, path: str, body: bytes) -> Answer:
        """Send a request to a process of a deployment, and count it."""
        started = time.perf_counter()
        answer, model_status = await self._send(deployment, path, body)
        milliseconds = (time.perf_counter() - started) * 1000
        key = (deployment.endpoint, deployment.name, minute_of(self._clock()))
        self._counts.setdefault(key, MinuteCounts()).add(answer.status, model_status, milliseconds)
        answer.headers[DEPLOYMENT_HEADER] = deployment.name
        if answer.status == OK:
            self._collector.collect_payload(deployment, path, body, answer.body, draw=self._draw())
        return answer

    async def _send(self, deployment: Deployment, path: str, body: bytes) -> tuple[Answer, int]:
        """Return the response, and the model's status (0 without a response of the model)."""
        settings = deployment.properties.get("requestSettings") or {}
        limit = settings.get("maxConcurrentRequestsPerInstance") or DEFAULT_CONCURRENCY
        instances = self._deployments.instances(deployment.endpoint, deployment.name)
        if not instances:
            return _text(503, "no instance of the deployment is ready"), 0
        instance = min(instances, key=lambda each: each.requests)
        # https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints
        if instance.requests >= 2 * limit:
            return _text(429, "too many pending requests"), 0
        timeout = settings.get("requestTimeout") or DEFAULT_TIMEOUT
        seconds = read_seconds("requestSettings.requestTimeout", timeout)
        instance.requests += 1
        try:
            async with self._session.post(
                f"{instance.url}{path}",
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as response:
                content = await response.read()
                status, kind = response.status, response.headers.get("Content-Type", "text/plain")
        except TimeoutError:
            return _text(408, f"the model did not answer within {seconds:g} s"), 0
        except aiohttp.ClientError as error:
            logger.info("%s/%s: %s", *deployment.key, error)
            return _text(502, "the connection to the model was lost"), 0
        finally:
            instance.requests -= 1
        headers: CIMultiDict[str] = CIMultiDict({"Content-Type": kind})
        if status == OK:
            return Answer(OK, content, headers), status
        headers[MODEL_STATUS_HEADER], headers[MODEL_REASON_HEADER] = str(status), "model_error"
        return Answer(MODEL_ERROR, content, headers), status

    async def _flush_often(self) -> None:
        is_failing = False
        while True:
            await self._sleep(FLUSH_SECONDS)
            try:
                await self.flush()
                is_failing = False
            except Exception:  # such as a full disk: the loop must not end
                if not is_failing:
                    logger.exception("counts of requests could not be written; retrying")
                is_failing = True


def _text(status: int, message: str) -> Answer:
    headers: CIMultiDict[str] = CIMultiDict({"Content-Type": "text/plain; charset=utf-8"})
    return Answer(status, message.encode(), headers)
