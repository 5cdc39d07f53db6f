"""Puts the virtual clock, threads and Azure ML's SDK in the place of what the handlers import."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any, Self, TypeVar
from unittest import mock

from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

from handlers.landing import copies
from handlers.notify import dead_letter_queue, delivery
from handlers.operate import copy_retention, retention
from handlers.platform import activity_adapter, azure_monitor, bulkheads, run_index, service_bus
from handlers.platform.configuration import configurations, pipeline_files
from handlers.rollout import endpoints, observing
from handlers.training import admission, retries
from tests.simulation.fakes.azure_ml import modules
from tests.simulation.fakes.endpoint_clients import PipelineClients
from tests.simulation.fakes.webhooks import WebhookReceiver
from tests.simulation.scheduler import Scheduler, VirtualLock

Result = TypeVar("Result")
# The very function; a file that is the same is parsed once for all seeds.
_parse_pipeline = functools.cache(pipeline_files.parse_pipeline)
_load_queues = functools.cache(pipeline_files.load_queues)
_modules = modules()
# A module of the name of its class, which hides it from `import`.
_instance_status = sys.modules[DurableOrchestrationStatus.__module__]


class _InlinePool:
    """In the place of `ThreadPoolExecutor`: its threads would be the machine's."""

    def __init__(self, _workers: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        pass

    def map(self, function: Callable[..., Result], *given: Iterable[Any]) -> list[Result]:
        return [*map(function, *given)]


@contextmanager
def installed(
    scheduler: Scheduler, receiver: WebhookReceiver, requests: PipelineClients
) -> Generator[None]:
    """Have the handlers live on a scheduler while the block lasts."""

    clock = SimpleNamespace(now=lambda tz: scheduler.now.astimezone(tz))  # noqa: PLW0108 - the time moves # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    time = SimpleNamespace(monotonic=scheduler.time)
    threads = SimpleNamespace(Lock=lambda: VirtualLock(scheduler))
    with ExitStack() as stack:
        for module, name, value in (
            (admission, "datetime", clock),
            (admission, "datetime", clock),
            (retries, "datetime", clock),
            (dead_letter_queue, "datetime", clock),
            (dead_letter_queue, "time", time),
            (activity_adapter, "call_with_timeout", scheduler.call_with_timeout),
            (bulkheads, "threading", scheduler.threading),
            (bulkheads, "wait", scheduler.wait_for_call),
            (service_bus, "threading", threads),
            (delivery, "post", receiver.post),
            (endpoints, "datetime", clock),
            (observing, "datetime", clock),
            (observing, "datetime", clock),
            (endpoints, "PipelineClient", requests),
            (azure_monitor, "PipelineClient", requests),
            (endpoints, "PipelineClient", requests),
            (configurations, "parse_pipeline", _parse_pipeline),
            (admission, "load_queues", _load_queues),
            (admission, "load_queues", _load_queues),
            (admission, "load_queues", _load_queues),
            (run_index, "ThreadPoolExecutor", _InlinePool),
            (copies, "ThreadPoolExecutor", _InlinePool),
            (copy_retention, "ThreadPoolExecutor", _InlinePool),
            (retention, "ThreadPoolExecutor", _InlinePool),
            # The SDK guesses the format of each time.
            (_instance_status, "dt_parse", datetime.fromisoformat),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(_imported(_modules))
        yield


@contextmanager
def _imported(stand_ins: dict[str, ModuleType]) -> Generator[None]:
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
