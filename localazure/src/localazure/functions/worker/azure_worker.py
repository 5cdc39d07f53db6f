"""Runs functions by azure-functions-runtime, the library of Azure's own worker from Python 3.13 on.

The library imports and indexes the app, converts the values of bindings, and calls the functions.
The host's part stays: triggers, inputs, outputs, limits and log lines. Values pass as
`azure.functions` has them, so that nothing is converted in between.

The library keeps one app for a process. It takes no SDK types and no web frameworks this way.

Source: azure_functions_runtime.native_invocation of azure-functions-runtime 1.3.0.
"""

from __future__ import annotations

import contextvars
import importlib
import logging
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from azure.functions.meta import Datum

from localazure.functions import logs
from localazure.functions.app.binding_kinds import HTTP_TRIGGER
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.errors import AppLoadError
from localazure.functions.http import web_extension
from localazure.functions.worker.invocation import Invoker, Outcome, TriggerData

_LOG: Final = logging.getLogger(logs.HOST_LOGGER)
PACKAGE: Final = "azure_functions_runtime"
_raised: contextvars.ContextVar[list[BaseException | None]] = contextvars.ContextVar("raised")


def _message(name: str, **constants: object) -> type:
    return type(name, (SimpleNamespace,), constants)


# Objects with the attributes of the protocol's messages: the library indexes an app into them.
_MESSAGES: Final = SimpleNamespace(
    BindingInfo=_message("BindingInfo", out=1, inout=2),
    StatusResult=_message("StatusResult", Failure=0, Success=1),
    **{
        name: _message(name)
        for name in (
            *("RpcException", "RpcFunctionMetadata", "RpcRetryOptions"),
            *("WorkerInitResponse", "WorkerMetadata"),
        )
    },
)


class _Threads(ThreadPoolExecutor):
    """Threads that log lines for the invocation that they work for."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Call a function in a thread, in the context of the caller."""
        return super().submit(contextvars.copy_context().run, fn, *args, **named)


class _NoteError(logging.Filter):
    """Keeps the error of a failed invocation, which the library tells to its log alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the library's line: the host writes one."""
        if record.msg != "Native invocation failed" or record.exc_info is None:
            return True
        _raised.get().append(record.exc_info[1])
        return False


async def index(app: Path, functions: Sequence[LoadedFunction], threads: int) -> None:
    """Have the library import and index an app, whose folder is on the import path.

    Raises:
        AppLoadError: the library is not installed, or refuses the app, or cannot run all of it.
    """
    try:
        worker: Any = importlib.import_module(PACKAGE)
        pool: Any = importlib.import_module(f"{PACKAGE}.utils.threadpool")
        library_log: Any = importlib.import_module(f"{PACKAGE}.logging")
    except ImportError as error:
        raise AppLoadError(
            f"--worker azure needs {PACKAGE.replace('_', '-')}, for Python 3.13 and later: "
            f"pip install 'localazure[worker]' ({error})"
        ) from error
    uncovered = [
        one.name
        for one in functions
        if any(parameter.is_sdk_type for parameter in one.signature.inputs.values())
        or one.signature.settlement_client
        or (one.trigger.kind == HTTP_TRIGGER and web_extension.is_used())
    ]
    if uncovered:
        raise AppLoadError(
            f"{', '.join(uncovered)}: --worker azure runs no function with SDK types and no web "
            "framework; annotate its parameters with classes of azure.functions, or leave the "
            "option out"
        )
    request = SimpleNamespace(
        request=SimpleNamespace(
            worker_init_request=SimpleNamespace(capabilities={}, function_app_directory=str(app))
        ),
        properties={"host": "", "protos": _MESSAGES},
    )
    answer = await worker.worker_init_request(request)
    if answer.result.status == _MESSAGES.StatusResult.Failure:
        raise AppLoadError(f"Azure's worker refuses the app: {answer.result.exception.message}")
    # There is no public way to give it a pool.
    pool._threadpool_executor = _Threads(threads, "function")  # noqa: SLF001
    library_log.logger.addFilter(_NoteError())
    _LOG.info("%s %s runs the functions", PACKAGE, answer.worker_metadata.worker_version)


class AzureInvoker(Invoker):
    """Runs the functions of the app that `index` has given to the library."""

    async def _run(
        self, function: LoadedFunction, data: TriggerData, correlation: logs.Correlation
    ) -> Outcome:
        native: Any = importlib.import_module(f"{PACKAGE}.native_invocation")
        inputs = list[tuple[str, Datum | None]]()
        for binding in function.bindings:
            if not binding.is_output:
                datum, _ = await self._fetch(function, binding, data)
                inputs.append((binding.name, datum if datum and datum.type else None))
        raised: list[BaseException | None] = []  # the call has a copy of the context
        _raised.set(raised)
        call = native.invocation_request_native(
            correlation.invocation_id,
            # The library's id of a function.
            str(uuid.uuid5(uuid.NAMESPACE_OID, function.name)),
            inputs,
            dict(data.metadata),
            data.trace.trace_parent,
            data.trace.trace_state,
        )
        is_done, returned, outputs, text, _ = await self._limited(
            function, self._loop.run(call) if self._loop else call
        )
        if not is_done:
            raise next(filter(None, raised), RuntimeError(text))
        return await self._send_outputs(function, data, returned, dict(outputs))

    def close(self) -> None:
        """Release the threads; a function that still runs in one goes on."""
        super().close()
        pool: Any = importlib.import_module(f"{PACKAGE}.utils.threadpool")
        pool._threadpool_executor.shutdown(wait=False, cancel_futures=True)  # noqa: SLF001
