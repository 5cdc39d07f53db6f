"""Calls of the service: the task hub that they are for, and the status of each error."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import grpc

from localazure.errors import StartError
from localazure.functions.durable.api.parameters import BadRequest
from localazure.functions.durable.engine.instance_id import InvalidInstanceId
from localazure.functions.durable.runtime.payloads import PayloadTooLarge
from localazure.functions.durable.runtime.task_hub import NotFinished, TaskHub, UnknownFunction
from localazure.functions.durable.store.records import (
    InstanceExists,
    InstanceFinished,
    InstanceMissing,
    NotFailed,
)

_HUB_HEADER: Final = "taskhub"
DEFAULT_HUB: Final = "default"


class InvalidHubName(ValueError):
    """No task hub can have this name. The message says why."""


_STATUSES: Final[dict[type[Exception], tuple[grpc.StatusCode, str]]] = {
    InstanceMissing: (grpc.StatusCode.NOT_FOUND, "there is no orchestration {!r}"),
    InstanceExists: (grpc.StatusCode.ALREADY_EXISTS, "{}"),
    InstanceFinished: (grpc.StatusCode.FAILED_PRECONDITION, "the orchestration {!r} has finished"),
    NotFailed: (grpc.StatusCode.FAILED_PRECONDITION, "the orchestration {!r} did not fail"),
    NotFinished: (grpc.StatusCode.FAILED_PRECONDITION, "{}"),
    InvalidInstanceId: (grpc.StatusCode.INVALID_ARGUMENT, "{}"),
    UnknownFunction: (grpc.StatusCode.INTERNAL, "{}"),  # as Azure
    InvalidHubName: (grpc.StatusCode.INVALID_ARGUMENT, "{}"),
    PayloadTooLarge: (grpc.StatusCode.INVALID_ARGUMENT, "{}"),
    BadRequest: (grpc.StatusCode.INVALID_ARGUMENT, "{}"),
    StartError: (grpc.StatusCode.FAILED_PRECONDITION, "{}"),  # of the task hub's file
}

Request = TypeVar("Request")
Response = TypeVar("Response")
Write = Callable[[Any], Awaitable[None]]


class HasHubs(Protocol):
    """A part of the service."""

    def hub(self, name: str) -> Any:
        """Return a task hub: a `TaskHub`, or the subclass that its methods take."""
        ...


Service = TypeVar("Service", bound=HasHubs)
Hub = TypeVar("Hub", bound=TaskHub)
Context = Any  # grpc.aio.ServicerContext, whose methods have no types


def hub_name(context: Context) -> str:
    """The name of the task hub that a call is for."""
    return dict(context.invocation_metadata()).get(_HUB_HEADER, DEFAULT_HUB)


def unary(
    method: Callable[[Service, Request, Hub], Awaitable[Response]],
) -> Callable[[Service, Request, Context], Awaitable[Response]]:
    """Make a method of the service from one that gets the task hub."""

    @functools.wraps(method)
    async def call(self: Service, request: Request, context: Context) -> Response:
        try:
            return await method(self, request, self.hub(hub_name(context)))
        except tuple(_STATUSES) as error:
            await _abort(context, error)
            raise  # abort has raised

    return call


def streaming(
    method: Callable[[Service, Request, Hub, Write], Awaitable[None]],
) -> Callable[[Service, Request, Context], Awaitable[None]]:
    """Make a method that answers with a stream."""

    @functools.wraps(method)
    async def call(self: Service, request: Request, context: Context) -> None:
        try:
            await method(self, request, self.hub(hub_name(context)), context.write)
        except tuple(_STATUSES) as error:
            await _abort(context, error)

    return call


async def _abort(context: Context, error: Exception) -> None:
    code, text = next(found for kind, found in _STATUSES.items() if isinstance(error, kind))
    await context.abort(code, text.format(str(error)))
