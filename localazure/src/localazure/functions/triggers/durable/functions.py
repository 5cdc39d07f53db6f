"""Connects the durable engine with the functions that it runs."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from azure.functions.meta import Datum

from localazure.faults.injector import Injector
from localazure.faults.plan import OF_ACTIVITIES, OF_SIGNALS
from localazure.functions.app import binding_kinds
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.app.user_traceback import users_traceback
from localazure.functions.configuration.app_settings import resolve_references
from localazure.functions.configuration.several_hosts import sharing_of
from localazure.functions.durable.engine.invocation import FunctionFailed, KnownFunctions, Trigger
from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.durable.extension import DurableExtension
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.app_worker import AppWorker
from localazure.functions.durable.runtime.hub_settings import Clock, HubSettings, utc_now
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.errors import AppLoadError, NotJsonError
from localazure.functions.http.authorization import KeyRing
from localazure.functions.triggers.durable import sdk_version
from localazure.functions.worker import orchestrators
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.runtime.environment import RUN_ACTIVITIES_TWICE


class DurableFunctions:
    """The engine, and the orchestrators, activities and entities of one app."""

    def __init__(  # noqa: PLR0913 - what the engine uses of the host
        self,
        functions: Iterable[LoadedFunction],
        *,
        invoker: Invoker,
        database_path: Path,
        base_url: str,
        keys: KeyRing,
        options: DurableOptions,
        app_settings: Mapping[str, str],
        faults: Injector,
        clock: Clock = utc_now,
    ) -> None:
        """Create an engine for the functions with a durable trigger, without starting it.

        The faults decide which activities are run twice, and which signals delivered twice.

        Raises:
            AppLoadError: two functions go by one name, or a setting is wrong.
        """
        self._invoker = invoker
        self._speaks_protocol = sdk_version.speaks_protocol()
        self._service = contextlib.AsyncExitStack()
        self._functions: dict[str, LoadedFunction] = {}
        for function in functions:
            name = function.durable_name.lower()
            if name in self._functions:
                raise AppLoadError(
                    f"the durable functions {self._functions[name].name} and {function.name} "
                    f"both go by the name {function.durable_name!r}"
                )
            if (
                function.trigger.kind == binding_kinds.ORCHESTRATION_TRIGGER
                and not function.is_async
                and not self._speaks_protocol
            ):
                function = replace(function, call=orchestrators.wrap(function.call))  # noqa: PLW2901 - the same one, faster
            self._functions[name] = function
        try:
            options = options.resolved(lambda text: resolve_references(text, app_settings))
            options.check_hub_name()
        except ValueError as error:
            raise AppLoadError(str(error)) from None
        always = app_settings.get(RUN_ACTIVITIES_TWICE, "").lower() in {"true", "1"}

        def runs_twice(activity: str) -> bool:
            return always or faults.next(f"activity/{activity}", OF_ACTIVITIES) is not None

        def signals_twice(entity: str) -> bool:
            return faults.next(f"signal/{entity}", OF_SIGNALS) is not None

        self.hub_name = options.hub_name
        settings = HubSettings(
            known=KnownFunctions(
                orchestrator=self._names(binding_kinds.ORCHESTRATION_TRIGGER),
                activity=self._names(binding_kinds.ACTIVITY_TRIGGER),
                entity=self._names(binding_kinds.ENTITY_TRIGGER),
            ),
            options=options,
            clock=clock,
        )
        self.extension = DurableExtension(
            database_path=database_path,
            base_url=base_url,
            system_key=keys.system,
            opens_webhook=keys.opens_webhook,
            settings=settings,
            worker=self._worker(
                settings,
                AppFunctions(
                    invoke=self._invoke, runs_twice=runs_twice, signals_twice=signals_twice
                ),
            ),
            sharing=sharing_of(app_settings),
        )

    def _worker(self, settings: HubSettings, functions: AppFunctions) -> Worker:
        if not self._speaks_protocol:
            return AppWorker(settings, functions)
        # It loads gRPC, which the SDK has brought.
        from localazure.functions.durable.protocol.app_functions_worker import AppFunctionsWorker

        return AppFunctionsWorker(settings, functions)

    async def start(self) -> None:
        """Start the engine; unfinished orchestrations continue."""
        if self._speaks_protocol:
            from localazure.functions.durable.protocol.serving import OneHub, serving

            self._invoker.separate()  # its clients may be synchronous, in any function
            service = serving(OneHub(self.extension.hub))
            self.extension.use_grpc(await self._service.enter_async_context(service))
        await self.extension.start()

    async def stop(self, drain_seconds: float) -> None:
        """Stop the engine; unfinished work continues at the next start."""
        await self.extension.stop(drain_seconds)
        await self._service.aclose()
        if self._speaks_protocol:
            return
        from azure.durable_functions.models.utils import http_utils

        # The SDK keeps one session a process and never closes it; it is bound to this event loop.
        # There is no public way to close it. Versions before 1.5 keep none.
        if close := getattr(http_utils, "_close_session", None):
            await close()

    def _names(self, kind: str) -> list[str]:
        return [one.durable_name for one in self._functions.values() if one.trigger.kind == kind]

    async def _invoke(self, name: str, trigger: Trigger) -> str | None:
        function = self._functions[name.lower()]
        if isinstance(trigger, OrchestratorTrigger):
            data = TriggerData(None, argument=orchestrators.TriggerContext(trigger))
        else:
            data = TriggerData(Datum(trigger, "string"))
        try:
            outcome = await self._invoker.invoke(function, data)
        except Exception as error:
            # Its sentence names the function and the remedy: no frame of the app is in its stack.
            stack = "" if isinstance(error, NotJsonError) else users_traceback(error)
            raise FunctionFailed(type(error).__name__, str(error), stack) from error
        if self._speaks_protocol and function.trigger.kind != binding_kinds.ACTIVITY_TRIGGER:
            return outcome.result and str(outcome.result.value)  # a message in base64
        return _as_json(outcome.result)


def _as_json(result: Datum | None) -> str | None:
    """A result's JSON text. Text that is not JSON becomes a JSON string, as in the real extension.

    An activity gives plain text where another output binding, whose values the SDK does not
    know, decides how its result is converted.
    """
    if result is None or result.value is None:
        return None
    text = base64.b64encode(result.value).decode() if result.type == "bytes" else str(result.value)
    if result.type == "json":
        return text
    try:
        json.loads(text)
    except ValueError:
        return json.dumps(text)
    return text
