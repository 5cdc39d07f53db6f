"""Stands in for azure-functions-durable 2, which needs Python 3.13, by durabletask's own classes.

As there, a trigger function takes a request of the protocol as base64 and returns the response; it
is `async def`, and runs the app's code in a thread.
"""

# pyright: basic, reportIncompatibleMethodOverride=false
# Written as an app's author would, not for the strict checker.
# ruff: noqa: ANN201, ANN202 - the same

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import azure.functions as func
import durabletask.internal.orchestrator_service_pb2 as pb
from durabletask.client import AsyncTaskHubGrpcClient
from durabletask.worker import TaskHubGrpcWorker


async def _answer(execute: Callable[..., Any], request: Any, method: str, context: Any) -> str:
    answers: list[Any] = []
    request.ParseFromString(base64.b64decode(context.body))
    stub = SimpleNamespace(**{method: answers.append})
    await asyncio.to_thread(execute, request, stub, None)
    return base64.b64encode(answers[0].SerializeToString()).decode()


class _Client(AsyncTaskHubGrpcClient):
    def __init__(self, binding: str) -> None:
        self._binding: dict[str, Any] = json.loads(binding)
        self.rpcBaseUrl = self._binding["rpcBaseUrl"]
        metadata = [("taskhub", self._binding["taskHubName"])]
        super().__init__(host_address=self.rpcBaseUrl, metadata=metadata)

    def create_check_status_response(self, _: func.HttpRequest, instance_id: str):
        urls = self._binding["managementUrls"]
        urls = {name: url.replace(urls["id"], instance_id) for name, url in urls.items()}
        return func.HttpResponse(json.dumps(urls), status_code=202)


class DFApp(func.FunctionApp):
    """A function app with the decorators of azure-functions-durable 2."""

    def orchestration_trigger(self, context_name: str):
        def decorate(function: Callable[..., Any]):
            worker = TaskHubGrpcWorker()
            worker.add_orchestrator(function)

            async def handle(context: func.OrchestrationContext) -> str:
                execute = worker._execute_orchestrator
                request = pb.OrchestratorRequest()
                return await _answer(execute, request, "CompleteOrchestratorTask", context)

            handle.__name__ = function.__name__
            return self.generic_trigger(context_name, "orchestrationTrigger")(handle)

        return decorate

    def entity_trigger(self, context_name: str):
        def decorate(function: Callable[..., Any]):
            worker = TaskHubGrpcWorker()
            worker.add_entity(function)

            async def handle(context: func.EntityContext) -> str:
                execute = worker._execute_entity_batch
                request = pb.EntityBatchRequest()
                return await _answer(execute, request, "CompleteEntityTask", context)

            handle.__name__ = function.__name__
            return self.generic_trigger(context_name, "entityTrigger")(handle)

        return decorate

    def activity_trigger(self, input_name: str):
        return self.generic_trigger(input_name, "activityTrigger")

    def durable_client_input(self, client_name: str):
        def decorate(function: Callable[..., Any]):
            @functools.wraps(function)
            async def bound(req: func.HttpRequest, client: str) -> func.HttpResponse:
                connected = _Client(client)
                try:
                    return await function(req, connected)
                finally:
                    await connected.close()

            del bound.__wrapped__
            bound.__annotations__ = {"req": func.HttpRequest, "client": str}
            return self.generic_input_binding(client_name, "durableClient")(bound)

        return decorate
