"""Runs functions: decodes the trigger, calls the function, encodes and sends the outputs.

As in the real worker, functions run

* on the event loop if they are `async def` (see `Invoker.separate`);
* otherwise in one thread pool, whose size is PYTHON_THREADPOOL_THREAD_COUNT. Orchestrators and
entities use the same pool, so blocking activities delay replay, here as on Azure.

An invocation that takes longer than functionTimeout fails, and the process must be recycled
(`on_timeout`). On Azure, all other invocations in the worker process are then lost, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from azure.functions.meta import Datum

from localazure.functions import logs
from localazure.functions.app import binding_kinds, converters, sdk_types
from localazure.functions.app.expressions import resolve
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.app.signature import RETURN, Binding
from localazure.functions.app.user_traceback import users_traceback
from localazure.functions.errors import FunctionExitError, FunctionTimeoutError, NotJsonError
from localazure.functions.http.web_extension import NATIVE
from localazure.functions.worker.app_loop import AppLoop
from localazure.functions.worker.context import (
    InvocationContext,
    Output,
    TraceContext,
)
from localazure.functions.worker.span_parent import SpanParent
from localazure.functions.worker.thread_pool import WorkerPool
from localazure.processes.pauses import wait_at_most

_LOG = logging.getLogger(logs.HOST_LOGGER)

# The replay of a long history takes a fraction of this time; a slower one runs blocking code.
SLOW_REPLAY_SECONDS: Final = 1.0

BindingData = Callable[[], Mapping[str, Any]]
Setting = Callable[[str], str]
"""Returns a setting of a binding, with its expressions resolved from the trigger's data."""


@dataclass(frozen=True)
class TriggerData:
    """The data that a trigger passes to a function."""

    datum: Datum | None
    metadata: Mapping[str, Datum] = field(default_factory=dict[str, Datum])
    trace: TraceContext = field(default_factory=TraceContext)
    binding_data: BindingData = dict
    """Returns the values that expressions in other bindings' settings may name."""
    argument: object = None
    """The trigger's argument, if it needs no conversion."""


@dataclass(frozen=True)
class Outcome:
    """The outputs of a function, encoded for its bindings."""

    result: Datum | None
    outputs: Mapping[str, Datum]


SendOutput = Callable[[Binding, Datum, Setting], Awaitable[None]]
FetchInput = Callable[[Binding, Setting], Awaitable[Datum]]


class Invoker:
    """Runs the functions of one app."""

    def __init__(
        self,
        *,
        timeout: timedelta | None,
        client_binding: Callable[[], str],
        fetch_input: FetchInput,
        send_output: SendOutput,
        threads: int,
        on_timeout: Callable[[], None] = lambda: None,
        span_parent: SpanParent = contextlib.nullcontext,
    ) -> None:
        """Create an invoker and its thread pool.

        Args:
            timeout: functionTimeout of host.json; None for no limit.
            client_binding: returns the JSON of durableClient inputs.
            fetch_input: fetches the value of any other input.
            send_output: sends the value of an output binding other than http.
            threads: the number of threads for synchronous functions, orchestrators and entities.
            on_timeout: called when an invocation exceeds the limit.
            span_parent: makes a trigger's trace context the parent of the function's spans.
        """
        self._timeout = timeout
        self._client_binding = client_binding
        self._fetch_input = fetch_input
        self._send_output = send_output
        self._threads = WorkerPool("function", threads)
        self._loop: AppLoop | None = None
        self._on_timeout = on_timeout
        self._span_parent = span_parent
        self.in_flight = 0
        """The number of running invocations, except those of durable triggers."""
        self._running: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()

    async def invoke(self, function: LoadedFunction, data: TriggerData) -> Outcome:
        """Run a function once.

        Raises:
            FunctionTimeoutError: the function ran longer than the limit.
            FunctionExitError: the function called sys.exit.
            Exception: the function, or the conversion of its values, failed.
        """
        correlation = logs.Correlation(function.name)
        token = logs.invocation.set(correlation)
        self._count(function, 1)
        # An orchestration is replayed many times; a line for each replay would hide other lines.
        is_noise = function.trigger.kind in {
            binding_kinds.ORCHESTRATION_TRIGGER,
            binding_kinds.ENTITY_TRIGGER,
        }
        level = logging.DEBUG if is_noise else logging.INFO
        is_logged = logs.is_written(f"Function.{function.name}", level)
        if is_logged:
            _LOG.log(level, "Executing '%s'", function.name)
        started = time.monotonic()
        try:
            outcome = await self._run(function, data, correlation)
        except BaseException as error:
            # The engine reports the failure of an orchestrator once. An activity's result that is
            # not JSON fails the orchestrator with the same text.
            is_reported_later = is_noise or isinstance(error, NotJsonError)
            _LOG.log(
                logging.DEBUG if is_reported_later else logging.ERROR,
                "Executed '%s' (Failed, %d ms)\n%s",
                function.name,
                (time.monotonic() - started) * 1000,
                users_traceback(error),
            )
            raise
        else:
            if is_logged:
                duration_ms = (time.monotonic() - started) * 1000
                _LOG.log(level, "Executed '%s' (Succeeded, %d ms)", function.name, duration_ms)
            return outcome
        finally:
            logs.invocation.reset(token)
            self._count(function, -1)

    async def drain(self, seconds: float) -> bool:
        """Wait until no invocation runs, up to a time limit; return whether none runs."""
        await wait_at_most(self._idle, seconds)
        return self._idle.is_set()

    @property
    def running(self) -> list[str]:
        """The sorted names of running functions."""
        return sorted(name for name, count in self._running.items() if count)

    @property
    def waiting_for_threads(self) -> int:
        """The number of invocations that wait for a thread of the pool."""
        return self._threads.waiting

    def separate(self) -> None:
        """Run `async def` functions on an event loop of their own, apart from the host's."""
        self._loop = AppLoop()

    def close(self) -> None:
        """Release the threads."""
        self._threads.close()
        if self._loop is not None:
            self._loop.close()

    def _count(self, function: LoadedFunction, change: int) -> None:
        self._running[function.name] += change
        if function.trigger.kind in binding_kinds.DURABLE_TRIGGERS:
            return
        self.in_flight += change
        if self.in_flight:
            self._idle.clear()
        else:
            self._idle.set()

    async def _run(
        self,
        function: LoadedFunction,
        data: TriggerData,
        correlation: logs.Correlation,
    ) -> Outcome:
        arguments = await self._decode_inputs(function, data)
        outputs = {name: Output() for name in function.signature.outputs}
        arguments.update(outputs)
        if name := function.signature.settlement_client:
            arguments[name] = sdk_types.settlement_client()
        context = None
        if function.signature.takes_context:
            context = arguments["context"] = InvocationContext(
                correlation=correlation,
                function_directory=str(function.directory),
                trace_context=data.trace,
            )
        with self._span_parent(data.trace):
            is_native = data.datum is not None and data.datum.type == NATIVE
            loop = None if is_native else self._loop  # a framework's request is of the host's loop
            result = await self._call(function, arguments, context, loop)
        returned = Datum(result, NATIVE) if is_native else _encode_result(function, result)
        encoded = {
            name: converters.encode(parameter.converter, value, parameter.python_type)
            for name, parameter in function.signature.outputs.items()
            if (value := outputs[name].get()) is not None
        }
        return await self._send_outputs(function, data, returned, encoded)

    async def _decode_inputs(self, function: LoadedFunction, data: TriggerData) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for binding in function.bindings:
            if binding.is_output:
                continue
            if binding is function.trigger and data.argument is not None:
                arguments[binding.name] = data.argument
                continue
            datum, metadata = await self._fetch(function, binding, data)
            if datum is not None and datum.type == NATIVE:
                arguments[binding.name] = datum.value
                continue
            parameter = function.signature.inputs[binding.name]
            if parameter.is_sdk_type and parameter.python_type and datum:
                arguments[binding.name] = await self._threads.run(
                    functools.partial(
                        sdk_types.decode, parameter.converter, parameter.python_type, datum
                    )
                )
                continue
            arguments[binding.name] = converters.decode(
                parameter.converter, datum or Datum(None, None), metadata
            )
        return arguments

    async def _fetch(
        self, function: LoadedFunction, binding: Binding, data: TriggerData
    ) -> tuple[Datum | None, Mapping[str, Datum]]:
        """The value of an input binding, with the metadata that only a trigger has."""
        if binding is function.trigger:
            is_text = data.argument is not None
            return Datum(str(data.argument), "string") if is_text else data.datum, data.metadata
        if binding.kind == binding_kinds.DURABLE_CLIENT:
            return Datum(self._client_binding(), "string"), {}
        return await self._fetch_input(binding, _setting(binding, data, function)), {}

    async def _call(
        self,
        function: LoadedFunction,
        arguments: dict[str, Any],
        context: InvocationContext | None,
        loop: AppLoop | None,
    ) -> Any:
        if function.is_async:
            coroutine = _call_async(function, arguments, context)
            return await self._limited(function, loop.run(coroutine) if loop else coroutine)
        call = functools.partial(_call_sync, function, arguments, context)
        return await self._limited(function, self._threads.run(call))

    async def _limited(self, function: LoadedFunction, call: Awaitable[Any]) -> Any:
        """Await a call of a function, as long as host.json allows."""
        limit = self._timeout.total_seconds() if self._timeout else None
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                return await call
        except SystemExit as error:
            raise FunctionExitError(
                f"'{function.name}' called sys.exit({error.code!r}), which on Azure ends the "
                "worker with all that it runs"
            ) from error
        except TimeoutError:
            if not timer.expired():  # raised by the function itself
                raise
            self._on_timeout()
            raise FunctionTimeoutError(
                f"'{function.name}' ran longer than host.json's functionTimeout of {self._timeout}"
            ) from None

    async def _send_outputs(
        self,
        function: LoadedFunction,
        data: TriggerData,
        returned: Datum | None,
        encoded: Mapping[str, Datum],
    ) -> Outcome:
        for binding in function.bindings:
            value = returned if binding.name == RETURN else encoded.get(binding.name)
            if binding.is_output and binding.kind != binding_kinds.HTTP and value and value.type:
                await self._send_output(binding, value, _setting(binding, data, function))
        return Outcome(returned, encoded)


def _setting(binding: Binding, data: TriggerData, function: LoadedFunction) -> Setting:
    def setting(name: str) -> str:
        text = str(binding.settings.get(name) or "")
        return resolve(text, data.binding_data, function.name)

    return setting


def _encode_result(function: LoadedFunction, result: Any) -> Datum | None:
    parameter = function.signature.result
    if parameter is None and result is not None:
        raise RuntimeError(
            f"function '{function.name}' returned a value, but has no $return binding"
        )
    if parameter is None:
        return None
    try:
        return converters.encode(parameter.converter, result, parameter.python_type)
    except (TypeError, ValueError) as error:
        if function.trigger.kind != binding_kinds.ACTIVITY_TRIGGER:
            raise
        raise NotJsonError(
            f"activity '{function.name}' returned a {type(result).__name__} that is not JSON "
            f"({error}): return dicts, lists, strings, numbers, booleans or None, or give its "
            "class the methods to_json and from_json"
        ) from None


async def _call_async(
    function: LoadedFunction, arguments: dict[str, Any], context: InvocationContext | None
) -> Any:
    _enter(context)
    return await function.call(**arguments)


def _call_sync(
    function: LoadedFunction, arguments: dict[str, Any], context: InvocationContext | None
) -> Any:
    _enter(context)
    if function.trigger.kind != binding_kinds.ORCHESTRATION_TRIGGER:
        return function.call(**arguments)
    started = time.monotonic()
    try:
        return function.call(**arguments)
    finally:
        seconds = time.monotonic() - started
        if seconds > SLOW_REPLAY_SECONDS:
            _LOG.warning(
                "orchestrator '%s' took %.1f s of a worker thread for one replay: an orchestrator "
                "must not block, and continue_as_new cuts a long history",
                function.name,
                seconds,
            )


def _enter(context: InvocationContext | None) -> None:
    """Set the invocation of the current thread, for log lines and contexts."""
    if context is not None:
        context.thread_local_storage.invocation_id = context.invocation_id
