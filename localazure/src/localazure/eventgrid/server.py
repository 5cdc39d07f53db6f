"""Event Grid's HTTP endpoints: publishing, and the administration of subscriptions.

Source: https://learn.microsoft.com/rest/api/eventgrid/dataplane/publish-cloud-event-events and
https://learn.microsoft.com/azure/event-grid/post-to-custom-topic. The routes under `/subscriptions`
are localazure's own: on Azure they belong to ARM.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure import limits
from localazure.errors import ConfigurationError
from localazure.eventgrid.authorization import (
    Forbidden,
    Identities,
    Unauthorized,
    authorize,
    bearer_token,
)
from localazure.eventgrid.configuration import Topic
from localazure.eventgrid.router import Router
from localazure.eventgrid.schemas import Event, InvalidEvent, Schema, check
from localazure.faults.http import handle_with_faults
from localazure.faults.injector import Injector
from localazure.json_text import parse_json
from localazure.runtime.environment import Environment

logger = logging.getLogger(__name__)

API_VERSION = "2018-01-01"
# Limits of a request and of an event: https://learn.microsoft.com/azure/event-grid/quotas-limits.
MAX_REQUEST_BYTES = limits.EVENT_GRID_REQUEST.value
_SCHEMA_OF_CONTENT_TYPE = {
    "application/json": Schema.EVENT_GRID,
    "application/cloudevents+json": Schema.CLOUD_EVENTS,
    "application/cloudevents-batch+json": Schema.CLOUD_EVENTS,
}


class _Refused(Exception):
    """The response to a request is an error."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """The endpoints of one router. A topic's key or an identity's role authorizes a publisher."""

    def __init__(
        self, router: Router, environment: Environment, identities: Identities, faults: Injector
    ) -> None:
        self._router = router
        self._environment = environment
        self._faults = faults
        self._identities = identities

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(
            client_max_size=MAX_REQUEST_BYTES, middlewares=[_errors_as_json]
        )
        application.add_routes(
            [
                web.post("/topics/{topic}/api/events", self._publish_or_fail),
                web.get("/subscriptions", self._list_subscriptions),
                web.get("/subscriptions/{name}", self._get_subscription),
                web.put("/subscriptions/{name}", self._put_subscription),
                web.delete("/subscriptions/{name}", self._delete_subscription),
                web.get("/subscriptions/{name}/validate", self._validate),
            ]
        )
        return application

    async def _publish_or_fail(self, request: web.Request) -> web.StreamResponse:
        return await handle_with_faults(
            self._faults,
            f"publish/{request.match_info['topic']}",
            request,
            lambda: self._publish(request),
            lambda rule: _error(HTTPStatus(rule.status), "a fault on purpose", "ServerBusy"),
        )

    async def _publish(self, request: web.Request) -> web.Response:
        name = request.match_info["topic"]
        token = bearer_token(request.headers)
        if token is None:
            self._authorize(request, self._environment.event_grid_keys(name))
        elif request.secure:
            self._identities.authorize(token, name, self._now())
        else:
            raise Unauthorized("send tokens to the TLS endpoint")
        topic = self._router.topic(name)
        if topic is None:
            raise _Refused(HTTPStatus.NOT_FOUND, f"there is no topic {name!r}")
        version = request.query.get("api-version")
        if version != API_VERSION:
            raise _Refused(
                HTTPStatus.BAD_REQUEST, f"api-version must be {API_VERSION}, found {version!r}"
            )
        resource_id = self._router.resource_id(topic)
        events = _parse_events(await _json(request), request, topic, resource_id)
        await self._router.publish(topic, events)
        return web.Response()

    async def _list_subscriptions(self, request: web.Request) -> web.Response:
        self._authorize(request)
        return web.json_response({"value": self._router.describe_all()})

    async def _get_subscription(self, request: web.Request) -> web.Response:
        self._authorize(request)
        described = self._router.describe(request.match_info["name"])
        if described is None:
            raise _no_subscription(request)
        return web.json_response(described)

    async def _put_subscription(self, request: web.Request) -> web.Response:
        self._authorize(request)
        body = await _json(request)
        if not isinstance(body, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "expected an object")
        subscription = await self._router.put_subscription(request.match_info["name"], body)
        return web.json_response(self._router.describe(subscription.name))

    async def _delete_subscription(self, request: web.Request) -> web.Response:
        self._authorize(request)
        if not await self._router.delete_subscription(request.match_info["name"]):
            raise _no_subscription(request)
        return web.Response()

    async def _validate(self, request: web.Request) -> web.Response:
        # The code proves access to the validation event: no key is needed, as on Azure.
        name, code = request.match_info["name"], request.query.get("code", "")
        if not await self._router.validate(name, code):
            raise _Refused(
                HTTPStatus.BAD_REQUEST, "this is not the validation code of the subscription"
            )
        return web.Response(text=f"subscription {name} is validated")

    def _authorize(self, request: web.Request, keys: Sequence[str] = ()) -> None:
        """Check the request's key or token, by default against the key for administration."""
        keys = keys or (self._environment.keys.event_grid,)
        authorize(request.headers, request.path, keys, self._now())

    def _now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._faults.clock_skew_seconds())


_STATUSES: Mapping[type[Exception], HTTPStatus] = {
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    InvalidEvent: HTTPStatus.BAD_REQUEST,
    ConfigurationError: HTTPStatus.BAD_REQUEST,
}


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except tuple(_STATUSES) as error:
        return _error(_STATUSES[type(error)], str(error))
    except _Refused as error:
        return _error(error.status, str(error))
    except web.HTTPRequestEntityTooLarge:
        message = f"a request may have at most {MAX_REQUEST_BYTES} bytes"
        return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, "PayloadTooLarge")


def _error(status: HTTPStatus, message: str, code: str = "") -> web.Response:
    """An error response. The default code is the status phrase."""
    error = {"code": code or status.phrase.replace(" ", ""), "message": message}
    return web.json_response({"error": error}, status=status)


def _no_subscription(request: web.Request) -> _Refused:
    name = request.match_info["name"]
    return _Refused(HTTPStatus.NOT_FOUND, f"there is no subscription {name!r}")


async def _json(request: web.Request) -> Any:
    try:
        return parse_json(await request.read())
    except ValueError as error:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from error


def _parse_events(
    body: object, request: web.Request, topic: Topic, resource_id: str
) -> list[Event]:
    """Parse the events of a request and add the topic's resource id.

    Raises:
        InvalidEvent: an event violates the topic's schema.
    """
    schema = topic.input_schema
    if _SCHEMA_OF_CONTENT_TYPE.get(request.content_type) is not schema:
        raise InvalidEvent(
            f"topic {topic.name!r} takes {topic.input_schema}, "
            f"and Content-Type {request.content_type!r} is not that"
        )
    if request.content_type == "application/cloudevents+json":
        body = [body]
    if not isinstance(body, list):
        raise InvalidEvent("the body must be an array of events")
    events = [check(event, schema, index) for index, event in enumerate(body)]
    if schema is Schema.EVENT_GRID:
        return [_with_topic(event, index, topic, resource_id) for index, event in enumerate(events)]
    return events


def _with_topic(event: Event, index: int, topic: Topic, resource_id: str) -> Event:
    named_topic = event.get("topic") or ""
    if resource_id and named_topic not in {"", resource_id}:
        raise InvalidEvent(
            f"event {index}: topic must be absent or {resource_id!r}, found {named_topic!r}"
        )
    return {
        **event,
        "topic": named_topic or resource_id or topic.name,
        "dataVersion": event.get("dataVersion") or "",
        "metadataVersion": "1",
    }
