"""The functions of an app of azure-functions-durable 2 as the worker of its task hub.

The SDK takes the protocol's requests as base64, and returns its responses so. Activities take and
return JSON.

Source: https://github.com/Azure/azure-functions-durable-extension (OutOfProcMiddleware)
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from typing import TypeVar

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.message import DecodeError, Message

from localazure.functions import logs
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.engine.invocation import FunctionFailed
from localazure.functions.durable.engine.versioning import FailureStrategy
from localazure.functions.durable.protocol.history_messages import text
from localazure.functions.durable.protocol.protocol_worker import ProtocolWorker
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.entities import split_entity_id
from localazure.functions.durable.runtime.hub_settings import HubSettings

_logger = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Message)


class AppFunctionsWorker(ProtocolWorker):
    """Runs the functions of an app in the host's process."""

    def __init__(self, settings: HubSettings, functions: AppFunctions) -> None:
        super().__init__(settings, functions.signals_twice)
        self._functions = functions

    async def orchestrate(
        self, execution: Execution, request: pb.OrchestratorRequest
    ) -> Sequence[pb.OrchestratorResponse]:
        """Run an episode; nothing for an instance whose version this host leaves to others."""
        options = self._settings.options
        if (mismatch := options.version_mismatch(execution)) is not None:
            if options.version_failure_strategy is FailureStrategy.FAIL:
                return [_failed_orchestration(FunctionFailed("VersionMismatch", mismatch, ""))]
            _logger.warning("%s; it waits for a host that runs its version", mismatch)
            return []
        try:
            with logs.working_for(execution.instance_id):
                answer = await self._answer("orchestrator", execution.name, request)
            return [_parsed(pb.OrchestratorResponse(), answer)]
        except FunctionFailed as failure:
            return [_failed_orchestration(failure)]

    async def act(self, request: pb.ActivityRequest) -> pb.ActivityResponse:
        """Run an activity."""
        given = request.input.value if request.HasField("input") else "null"
        try:
            result = await self._call("activity", request.name, given)
            if self._functions.runs_twice(request.name):
                result = await self._call("activity", request.name, given)
        except FunctionFailed as failure:
            return pb.ActivityResponse(failureDetails=_details(failure))
        return pb.ActivityResponse(result=text(result))

    async def operate(self, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        """Run a batch of operations."""
        entity_id = request.instanceId
        name, _ = split_entity_id(entity_id)
        try:
            with logs.working_for(entity_id):
                answer = await self._answer("entity", name, request)
            return _parsed(pb.EntityBatchResult(), answer)
        except FunctionFailed as failure:
            error = str(failure)
            details = _details(failure)
        _logger.error("entity %s failed; its state is unchanged: %s", entity_id, error)
        return pb.EntityBatchResult(failureDetails=details)

    async def _answer(self, kind: str, name: str, request: Message) -> str | None:
        given = base64.b64encode(request.SerializeToString()).decode()
        return await self._call(kind, name, given)

    async def _call(self, kind: str, name: str, given: str) -> str | None:
        """Call a function. Raises FunctionFailed, also if there is no such function."""
        known = self._settings.known
        function = known.resolve(kind, name)
        if function is None:
            raise FunctionFailed("InvalidOperationException", known.missing(kind, name), "")
        return await self._functions.invoke(function, given)


def _parsed(answer: Answer, encoded: str | None) -> Answer:
    """Decode a function's answer into a message."""
    try:
        answer.ParseFromString(base64.b64decode(encoded or "", validate=True))
    except (ValueError, DecodeError) as error:
        kind = answer.DESCRIPTOR.name
        raise FunctionFailed("ValueError", f"no valid {kind} in base64: {error}", "") from error
    return answer


def _details(failure: FunctionFailed) -> pb.TaskFailureDetails:
    return pb.TaskFailureDetails(
        errorType=failure.type_name, errorMessage=failure.message, stackTrace=text(failure.stack)
    )


def _failed_orchestration(failure: FunctionFailed) -> pb.OrchestratorResponse:
    end = pb.CompleteOrchestrationAction(
        orchestrationStatus=pb.ORCHESTRATION_STATUS_FAILED, failureDetails=_details(failure)
    )
    return pb.OrchestratorResponse(actions=[pb.OrchestratorAction(completeOrchestration=end)])
