"""Puts the virtual clock, threads and Azure ML's SDK in the place of what the handlers import."""

from __future__ import annotations

import functools
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from unittest import mock

from handlers.configuration import configurations, pipeline_files
from handlers.durable import activity_adapter
from handlers.messaging import dead_letter_queue, message_outbox, retry_queue, service_bus
from handlers.notifications import delivery
from tests.simulation.fakes.azure_ml import modules
from tests.simulation.fakes.webhooks import WebhookReceiver
from tests.simulation.scheduler import Scheduler, VirtualLock

# The very function; a file that is the same is parsed once for all seeds.
_parse_pipeline = functools.cache(pipeline_files.parse_pipeline)
_modules = modules()


@contextmanager
def installed(scheduler: Scheduler, receiver: WebhookReceiver) -> Generator[None]:
    """Have the handlers live on a scheduler while the block lasts."""
    clock = SimpleNamespace(now=lambda tz: scheduler.now.astimezone(tz))  # noqa: PLW0108 - the time moves # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    time = SimpleNamespace(monotonic=scheduler.time)
    threads = SimpleNamespace(Lock=lambda: VirtualLock(scheduler))
    with ExitStack() as stack:
        for module, name, value in (
            (retry_queue, "datetime", clock),
            (dead_letter_queue, "datetime", clock),
            (dead_letter_queue, "time", time),
            (activity_adapter, "within", scheduler.within),
            (message_outbox, "within", scheduler.within),
            (service_bus, "threading", threads),
            (delivery, "post", receiver.post),
            (configurations, "parse_pipeline", _parse_pipeline),
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
