"""Connects the durable engine with the functions that it runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from azure.functions.meta import Datum

from localazure.faults.injector import Injector
from localazure.functions.app import binding_kinds
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.app.user_traceback import users_traceback
from localazure.functions.configuration.app_settings import resolve_references
from localazure.functions.durable.app_description import AppDescription
from localazure.functions.durable.engine.invocation import FunctionFailed, Trigger
from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.durable.extension import DurableExtension
from localazure.functions.durable.hosts.host_link import HostLink
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime.hub_settings import Clock, utc_now
from localazure.functions.errors import AppLoadError, NotJsonError
from localazure.functions.http.authorization import KeyRing
from localazure.functions.triggers.durable import sdk_version
from localazure.functions.worker import orchestrators
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.runtime.environment import ENGINE, RUN_ACTIVITIES_TWICE


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
        self._functions: dict[str, LoadedFunction] = {}
        for function in functions:
            name = function.durable_name.lower()
            if name in self._functions:
                raise AppLoadError(
                    f"the durable functions {self._functions[name].name} and {function.name} "
                    f"both go by the name {function.durable_name!r}"
                )
            if self._replays(function) and not function.is_async:
                function = replace(function, call=orchestrators.wrap(function.call))  # noqa: PLW2901 - the same one, faster
            self._functions[name] = function
        try:
            options = options.resolved(lambda text: resolve_references(text, app_settings))
            options.check_hub_name()
        except ValueError as error:
            raise AppLoadError(str(error)) from None
        self.hub_name = options.hub_name
        app = AppDescription(
            base_url=base_url,
            system_key=keys.system,
            options=options,
            functions={
                "orchestrator": self._names(binding_kinds.ORCHESTRATION_TRIGGER),
                "activity": self._names(binding_kinds.ACTIVITY_TRIGGER),
                "entity": self._names(binding_kinds.ENTITY_TRIGGER),
            },
            runs_activities_twice=app_settings.get(RUN_ACTIVITIES_TWICE, "").lower()
            in {"true", "1"},
            speaks_protocol=self._speaks_protocol,
        )
        self.extension: DurableExtension | HostLink
        if engine := app_settings.get(ENGINE):
            self.extension = HostLink(
                app, address=Path(engine), opens_webhook=keys.opens_webhook, invoke=self._invoke
            )
        else:
            self.extension = DurableExtension(
                app,
                database_path=database_path,
                opens_webhook=keys.opens_webhook,
                invoke=self._invoke,
                faults=faults,
                clock=clock,
            )

    async def start(self) -> None:
        """Start the engine; unfinished orchestrations continue."""
        if self._speaks_protocol:
            self._invoker.separate()  # its clients may be synchronous, in any function
        await self.extension.start()

    async def stop(self, drain_seconds: float) -> None:
        """Stop the engine; unfinished work continues at the next start."""
        await self.extension.stop(drain_seconds)
        if self._speaks_protocol:
            return
        from azure.durable_functions.models.utils import http_utils

        # The SDK keeps one session a process and never closes it; it is bound to this event loop.
        # There is no public way to close it. Versions before 1.5 keep none.
        if close := getattr(http_utils, "_close_session", None):
            await close()

    def _replays(self, function: LoadedFunction) -> bool:
        """Whether it is an orchestrator that takes an `OrchestratorTrigger`."""
        kind = function.trigger.kind
        return kind == binding_kinds.ORCHESTRATION_TRIGGER and not self._speaks_protocol

    def _names(self, kind: str) -> list[str]:
        return [one.durable_name for one in self._functions.values() if one.trigger.kind == kind]

    async def _invoke(self, name: str, trigger: Trigger) -> str | None:
        function = self._functions[name.lower()]
        if self._replays(function) and isinstance(trigger, str):
            trigger = OrchestratorTrigger.parse(trigger)
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
